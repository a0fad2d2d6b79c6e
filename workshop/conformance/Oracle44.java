import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.ValueJoinerWithStreamAndMappedKey;
import org.apache.kafka.streams.processor.StreamPartitioner;

/** What Kafka Streams 4.3 does not compile. `Oracle` calls it by reflection. */
@SuppressWarnings({"unchecked", "rawtypes"})
class Oracle44 {
    static KStream join(Object stream, Object table, Object mapper, Object how, Object named) {
        ValueJoinerWithStreamAndMappedKey joiner = (key, mapped, value, other) -> key + ":" + mapped + ":" + Oracle.joiner(value, other);
        KStream left = (KStream) stream;
        GlobalKTable right = (GlobalKTable) table;
        KeyValueMapper by = (KeyValueMapper) mapper;
        Named name = (Named) named;
        if (how.equals("inner")) return name == null ? left.join(right, by, joiner) : left.join(right, by, joiner, name);
        return name == null ? left.leftJoin(right, by, joiner) : left.leftJoin(right, by, joiner, name);
    }

    /** Drops a record whose last header is null; with another header it goes to partition 0, without one to that of its key. */
    static StreamPartitioner byHeader() {
        return new StreamPartitioner<Object, Object>() {
            @Override
            public Optional<Set<Integer>> partitions(String topic, Object key, Object value, int partitions) {
                throw new UnsupportedOperationException();
            }
            @Override
            public Optional<Set<Integer>> partitions(String topic, Object key, Object value, Headers headers, int partitions) {
                var all = headers.toArray();
                if (all.length == 0) return Optional.empty();
                return Optional.of(all[all.length - 1].value() == null ? Set.of() : Set.of(0));
            }
        };
    }
}
