import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.file.Path;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ReadOnlyRecord;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.*;
import org.apache.kafka.streams.state.ReadOnlyRecordIterator;

/**
 * Writes the stores of `HeaderOracle`, and asks them the queries with headers of Kafka Streams 4.4 (KIP-1356).
 * usage: HeaderQueryOracle CASES.json STATE_DIRECTORY > RESULTS.json
 */
@SuppressWarnings({"unchecked", "rawtypes"})
public class HeaderQueryOracle extends HeaderOracle {
    static class WritesAndQueries extends Operations {
        @Override
        public void process(Record<String, String> record) {
            try {
                JsonNode op = JSON.readTree(record.value());
                if (!op.has("query")) {
                    super.process(record);
                    return;
                }
                context().forward(record.withValue(JSON.writeValueAsString(answer(context().getStateStore("s"), op))));
            } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
                throw new RuntimeException(error);
            }
        }
    }

    static JsonNode answer(StateStore store, JsonNode op) {
        ObjectNode shown = JSON.createObjectNode();
        QueryResult<?> result = store.query((Query) query(op), PositionBound.unbounded(), new QueryConfig(false));
        if (result.isFailure()) return shown.put("failure", result.getFailureReason().toString());
        ArrayNode records = shown.putArray("records");
        if (result.getResult() instanceof ReadOnlyRecord<?, ?> one) add(records, one);
        if (result.getResult() instanceof ReadOnlyRecordIterator rows) while (rows.hasNext()) add(records, (ReadOnlyRecord<?, ?>) rows.next());
        return shown;
    }

    static void add(ArrayNode records, ReadOnlyRecord<?, ?> one) {
        JsonNode key = one.key() instanceof Windowed<?> windowed ? shown(windowed) : JSON.valueToTree(one.key());
        records.addArray().add(key).add((String) one.value()).add(one.timestamp()).add(shown(one.headers()));
    }

    static Query<?> query(JsonNode op) {
        String key = text(op.get("key"));
        switch (op.get("query").asText()) {
            case "key": return TimestampedKeyWithHeadersQuery.withKey(key);
            case "range": {
                TimestampedRangeWithHeadersQuery<String, String> made = TimestampedRangeWithHeadersQuery.withRange(text(op.get("low")), text(op.get("high")));
                String order = op.path("order").asText();
                return order.equals("ascending") ? made.withAscendingKeys() : order.equals("descending") ? made.withDescendingKeys() : made;
            }
            case "window_key": return TimestampedWindowKeyWithHeadersQuery.withKeyAndWindowStartRange(key, at(op, "from"), at(op, "to"));
            default: return key != null
                ? TimestampedWindowRangeWithHeadersQuery.withKey(key)
                : TimestampedWindowRangeWithHeadersQuery.withWindowStartRange(at(op, "from"), at(op, "to"));
        }
    }

    public static void main(String[] args) throws Exception {
        ArrayNode results = JSON.createArrayNode();
        for (JsonNode one : JSON.readTree(Path.of(args[0]).toFile())) results.add(run(one, args[1], WritesAndQueries::new).get("found"));
        System.out.println(JSON.writeValueAsString(results));
    }
}
