import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;

/** The queries of theodolite_queries.py on Kafka Streams: the same operators in the same order, one method each. */
final class TheodoliteTwins {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<byte[]> BYTES = Serdes.ByteArray();
    private static final Serde<JsonNode> JSON = NexmarkTwins.JSON;
    private static final Serde<Statistics> STATISTICS =
        Serdes.serdeFrom((topic, found) -> found == null ? null : found.bytes(), (topic, data) -> data == null ? null : Statistics.of(data));
    private static final long HOUR = 3_600_000;
    private static final Duration DAY = Duration.ofDays(1);
    private static final Duration EMIT = Duration.ofSeconds(5);

    private final StreamsBuilder builder;
    private final String prefix;
    private final String output;
    private final Runnable seen;

    TheodoliteTwins(StreamsBuilder builder, Map<String, String> options, Runnable seen) {
        this.builder = builder;
        this.prefix = options.get("input");
        this.output = options.get("output");
        this.seen = seen;
    }

    void build(String query) {
        switch (query) {
            case "uc1" -> measured().mapValues(row -> (JsonNode) measurement(text(row), number(row, "timestamp"), number(row, "valueInW")))
                .to(output, Produced.with(TEXT, JSON));
            case "uc2" -> statistics(measured().groupByKey(Grouped.with(TEXT, JSON))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1))));
            case "uc3" -> statistics(measured()
                .selectKey((key, row) -> text(row) + "@" + number(row, "timestamp") / HOUR % 24)
                .groupByKey(Grouped.with(TEXT, JSON))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(30), DAY).advanceBy(DAY)));
            case "uc4" -> uc4();
            case "shuffle-100000" -> shuffle(100_000);
            case "shuffle-1000000" -> shuffle(1_000_000);
            default -> throw new IllegalArgumentException(query);
        }
    }

    private <K, V> KStream<K, V> input(Consumed<K, V> consumed) {
        return builder.stream(prefix + "-input", consumed).peek((key, value) -> seen.run());
    }

    private KStream<String, JsonNode> measured() {
        return input(Consumed.with(TEXT, JSON));
    }

    private static ObjectNode measurement(String sensor, long at, long watts) {
        return NexmarkTwins.object().put("identifier", sensor).put("timestamp", at).put("valueInW", watts);
    }

    private static String text(JsonNode row) {
        return NexmarkTwins.text(row, "identifier");
    }

    private static long number(JsonNode row, String name) {
        return NexmarkTwins.number(row, name);
    }

    // ---- UC2 and UC3

    private void statistics(TimeWindowedKStream<String, JsonNode> windows) {
        windows.aggregate(Statistics::none, (key, row, found) -> found.with(number(row, "valueInW")), Materialized.with(TEXT, STATISTICS))
            .toStream()
            .map((window, found) -> KeyValue.pair(window.key() + "@" + window.window().start(), found.text()))
            .to(output, Produced.with(TEXT, TEXT));
    }

    private record Statistics(long number, double mean, double squares, double smallest, double largest) {
        static Statistics none() {
            return new Statistics(0, 0, 0, Double.POSITIVE_INFINITY, Double.NEGATIVE_INFINITY);
        }

        Statistics with(double value) {
            double delta = value - mean;
            double now = mean + delta / (number + 1);
            return new Statistics(
                number + 1, now, squares + delta * (value - now), Math.min(smallest, value), Math.max(largest, value));
        }

        byte[] bytes() {
            return ByteBuffer.allocate(40)
                .putLong(number).putDouble(mean).putDouble(squares).putDouble(smallest).putDouble(largest).array();
        }

        static Statistics of(byte[] data) {
            ByteBuffer found = ByteBuffer.wrap(data);
            return new Statistics(found.getLong(), found.getDouble(), found.getDouble(), found.getDouble(), found.getDouble());
        }

        String text() {
            return "count=" + number + ", mean=" + (long) Math.floor(mean * 1000)
                + ", populationVariance=" + (long) Math.floor(squares / number * 1000)
                + ", min=" + (long) smallest + ", max=" + (long) largest;
        }
    }

    // ---- UC4

    private record Member(JsonNode row, String group) { }

    private void uc4() {
        KStream<String, JsonNode> totalsOfGroups = builder.stream(output + "-feedback", Consumed.with(TEXT, JSON))
            .mapValues(total -> measurement(text(total), number(total, "timestamp"), number(total, "sumInW")));
        KTable<String, String> groups = builder.table(prefix + "-groups", Consumed.with(TEXT, TEXT), Materialized.as("groups"));
        KTable<String, JsonNode> totals = measured()
            .merge(totalsOfGroups)
            .join(groups, Member::new, Joined.with(TEXT, JSON, TEXT))
            .map((sensor, found) -> KeyValue.pair(sensor + "|" + found.group(), found.row()))
            .groupByKey(Grouped.with(TEXT, JSON))
            .windowedBy(TimeWindows.ofSizeAndGrace(EMIT, DAY))
            .reduce(TheodoliteTwins::newer, Materialized.with(TEXT, JSON))
            .groupBy((window, row) -> KeyValue.pair(
                window.key().substring(window.key().indexOf('|') + 1) + "@" + window.window().start(), row), Grouped.with(TEXT, JSON))
            .aggregate(() -> total("", 0, 0, 0), TheodoliteTwins::plus, TheodoliteTwins::minus, Materialized.with(TEXT, JSON));
        totals.toStream().selectKey((key, total) -> text(total)).to(output + "-feedback", Produced.with(TEXT, JSON));
        totals.suppress(Suppressed.untilTimeLimit(EMIT, Suppressed.BufferConfig.unbounded()))
            .toStream().filter((key, total) -> total != null).to(output, Produced.with(TEXT, JSON));
    }

    private static JsonNode newer(JsonNode one, JsonNode other) {
        return number(other, "timestamp") >= number(one, "timestamp") ? other : one;
    }

    private static JsonNode total(String group, long at, long number, long watts) {
        return NexmarkTwins.object().put("identifier", group).put("timestamp", at).put("count", number)
            .put("sumInW", watts).put("averageInW", number == 0 ? 0 : watts / number);
    }

    private static JsonNode plus(String key, JsonNode row, JsonNode total) {
        return total(key.substring(0, key.indexOf('@')), Math.max(number(row, "timestamp"), number(total, "timestamp")),
            number(total, "count") + 1, number(total, "sumInW") + number(row, "valueInW"));
    }

    private static JsonNode minus(String key, JsonNode row, JsonNode total) {
        return total(text(total), number(total, "timestamp"), number(total, "count") - 1, number(total, "sumInW") - number(row, "valueInW"));
    }

    // ---- ShuffleBench

    private void shuffle(int consumers) {
        Rules rules = new Rules(consumers);
        input(Consumed.with(BYTES, BYTES))
            .flatMap((key, data) -> rules.matches(data))
            .repartition(Repartitioned.<String, byte[]>as("matches").withKeySerde(TEXT).withValueSerde(BYTES))
            .process(new Consumers())
            .to(output, Produced.with(TEXT, BYTES));
    }

    /** Random ranges of 63 bits, one for each consumer. */
    private static final class Rules {
        private final long[] offsets;
        private final long width;

        Rules(int consumers) {
            offsets = new long[consumers];
            width = (long) (0.2 / consumers * 0x1p63);
            long at = 0x2E3FAC4F58FC98B4L;
            for (int number = 0; number < consumers; number++) {
                at = (at * 6364136223846793005L + 1442695040888963407L) & Long.MAX_VALUE;
                offsets[number] = at;
            }
            Arrays.sort(offsets);
        }

        List<KeyValue<String, byte[]>> matches(byte[] data) {
            long at = ByteBuffer.wrap(data).getLong() >>> 1;
            int found = Arrays.binarySearch(offsets, at);
            List<KeyValue<String, byte[]>> matches = new ArrayList<>(1);
            for (int rule = found >= 0 ? found : -found - 2; ; rule--) {
                int consumer = Math.floorMod(rule, offsets.length);
                if (((at - offsets[consumer]) & Long.MAX_VALUE) >= width) {
                    return matches;
                }
                matches.add(KeyValue.pair("consumer_" + consumer, data));
            }
        }
    }

    private static final class Consumers implements ProcessorSupplier<String, byte[], String, byte[]> {
        @Override
        public Processor<String, byte[], String, byte[]> get() {
            return new StatefulConsumer();
        }

        @Override
        public Set<StoreBuilder<?>> stores() {
            return Set.of(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("consumers"), TEXT, BYTES));
        }
    }

    private static final class StatefulConsumer implements Processor<String, byte[], String, byte[]> {
        private static final int OUTPUT_RATE = 10;
        private ProcessorContext<String, byte[]> context;
        private KeyValueStore<String, byte[]> states;

        @Override
        public void init(ProcessorContext<String, byte[]> given) {
            context = given;
            states = given.getStateStore("consumers");
        }

        @Override
        public void process(Record<String, byte[]> record) {
            byte[] found = states.get(record.key());
            ByteBuffer state = ByteBuffer.wrap(found == null ? new byte[32] : found);
            long number = (found == null ? Integer.parseInt(record.key(), 9, record.key().length(), 10) % OUTPUT_RATE : state.getLong(0)) + 1;
            state.putLong(0, number);
            state.putLong(8, state.getLong(8) + ByteBuffer.wrap(record.value()).getLong());
            if (number == 1) {
                state.putLong(16, record.timestamp());
            }
            state.putLong(24, record.timestamp());
            byte[] now = state.array();
            if (number == OUTPUT_RATE) {
                context.forward(record.withValue(now.clone()));
                now = new byte[32];
            }
            states.put(record.key(), now);
        }
    }
}
