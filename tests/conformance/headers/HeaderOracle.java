import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.*;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.*;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs the operations of each case on one of Kafka Streams' stores with headers, and prints what they returned, what the changelog got,
 * and the bytes of rows.
 * usage: HeaderOracle CASES.json STATE_DIRECTORY > RESULTS.json
 */
@SuppressWarnings({"unchecked", "rawtypes"})
public class HeaderOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    static String text(JsonNode node) { return node == null || node.isNull() ? null : node.asText(); }
    static byte[] bytes(String text) { return text == null ? null : text.getBytes(StandardCharsets.UTF_8); }
    static String hex(byte[] data) { return data == null ? null : HexFormat.of().formatHex(data); }
    static Instant at(JsonNode op, String name) { return Instant.ofEpochMilli(op.get(name).asLong()); }
    static Headers headers(JsonNode pairs) {
        RecordHeaders made = new RecordHeaders();
        if (pairs != null) for (JsonNode pair : pairs) made.add(pair.get(0).asText(), bytes(text(pair.get(1))));
        return made;
    }
    static ArrayNode shown(Headers headers) {
        ArrayNode pairs = JSON.createArrayNode();
        for (Header header : headers) pairs.addArray().add(header.key()).add(header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8));
        return pairs;
    }
    static JsonNode shown(Object found) {
        ArrayNode row = JSON.createArrayNode();
        if (found == null) return JSON.nullNode();
        if (found instanceof ValueTimestampHeaders<?> v) return row.add((String) v.value()).add(v.timestamp()).add(shown(v.headers()));
        if (found instanceof AggregationWithHeaders<?> a) return row.add((String) a.aggregation()).add(shown(a.headers()));
        if (found instanceof Windowed<?> w) return row.add((String) w.key()).add(w.window().start()).add(w.window().end());
        return JSON.valueToTree(found);
    }
    static JsonNode rows(Iterator rows) {
        ArrayNode found = JSON.createArrayNode();
        while (rows.hasNext()) {
            KeyValue<?, ?> row = (KeyValue<?, ?>) rows.next();
            found.addArray().add(shown(row.key)).add(shown(row.value));
        }
        return found;
    }
    static ValueTimestampHeaders<String> value(JsonNode op) {
        return ValueTimestampHeaders.make(text(op.get("v")), op.path("t").asLong(), headers(op.get("h")));
    }

    static class Operations extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            try {
                JsonNode op = JSON.readTree(record.value());
                Object store = context().getStateStore("s");
                JsonNode found = store instanceof KeyValueStore ? onKeys((KeyValueStore) store, record.key(), op)
                    : store instanceof WindowStore ? onWindows((WindowStore) store, record.key(), op) : onSessions((SessionStore) store, record.key(), op);
                context().forward(record.withValue(JSON.writeValueAsString(found)));
            } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
                throw new RuntimeException(error);
            }
        }
        JsonNode onKeys(KeyValueStore<String, ValueTimestampHeaders<String>> store, String key, JsonNode op) {
            switch (op.get("op").asText()) {
                case "put": store.put(key, value(op)); return JSON.nullNode();
                case "put_if_absent": return shown(store.putIfAbsent(key, value(op)));
                case "put_all": {
                    List<KeyValue<String, ValueTimestampHeaders<String>>> all = new ArrayList<>();
                    for (JsonNode one : op.get("all")) all.add(KeyValue.pair(one.get("k").asText(), value(one)));
                    store.putAll(all);
                    return JSON.nullNode();
                }
                case "delete": return shown(store.delete(key));
                case "get": return shown(store.get(key));
                case "range": return rows(store.range(text(op.get("low")), text(op.get("high"))));
                case "reverse_range": return rows(store.reverseRange(text(op.get("low")), text(op.get("high"))));
                case "all": return rows(store.all());
                case "prefix_scan": return rows(store.prefixScan(op.get("low").asText(), new StringSerializer()));
                default: throw new IllegalArgumentException(op.toString());
            }
        }
        JsonNode onWindows(WindowStore<String, ValueTimestampHeaders<String>> store, String key, JsonNode op) {
            switch (op.get("op").asText()) {
                case "put": store.put(key, value(op), op.get("start").asLong()); return JSON.nullNode();
                case "get": return shown(store.fetch(key, op.get("start").asLong()));
                case "fetch": return rows(store.fetch(key, at(op, "from"), at(op, "to")));
                case "backward_fetch": return rows(store.backwardFetch(key, at(op, "from"), at(op, "to")));
                case "fetch_all": return rows(store.fetchAll(at(op, "from"), at(op, "to")));
                case "all": return rows(store.all());
                default: throw new IllegalArgumentException(op.toString());
            }
        }
        JsonNode onSessions(SessionStore<String, AggregationWithHeaders<String>> store, String key, JsonNode op) {
            Windowed<String> session = op.has("start") ? new Windowed<>(key, new SessionWindow(op.get("start").asLong(), op.get("end").asLong())) : null;
            switch (op.get("op").asText()) {
                case "put": store.put(session, AggregationWithHeaders.make(text(op.get("v")), headers(op.get("h")))); return JSON.nullNode();
                case "remove": store.remove(session); return JSON.nullNode();
                case "get": return shown(store.fetchSession(key, op.get("start").asLong(), op.get("end").asLong()));
                case "find": return rows(store.findSessions(key, op.get("from").asLong(), op.get("to").asLong()));
                case "backward_find": return rows(store.backwardFindSessions(key, op.get("from").asLong(), op.get("to").asLong()));
                case "fetch": return rows(store.fetch(key));
                default: throw new IllegalArgumentException(op.toString());
            }
        }
    }

    static StoreBuilder<?> builder(JsonNode about) {
        boolean memory = about.path("in_memory").asBoolean();
        Duration retention = Duration.ofMillis(300_000), size = Duration.ofMillis(10);
        Serde<String> text = Serdes.String();
        StoreBuilder<?> made;
        switch (about.get("store").asText()) {
            case "key-value": made = Stores.timestampedKeyValueStoreWithHeadersBuilder(memory ? Stores.inMemoryKeyValueStore("s") : Stores.persistentTimestampedKeyValueStoreWithHeaders("s"), text, text); break;
            case "window": made = Stores.timestampedWindowStoreWithHeadersBuilder(memory ? Stores.inMemoryWindowStore("s", retention, size, false) : Stores.persistentTimestampedWindowStoreWithHeaders("s", retention, size, false), text, text); break;
            default: made = Stores.sessionStoreWithHeadersBuilder(memory ? Stores.inMemorySessionStore("s", retention) : Stores.persistentSessionStoreWithHeaders("s", retention), text, text);
        }
        return about.path("cached").asBoolean() ? made.withCachingEnabled() : made;
    }

    static ObjectNode run(JsonNode about, String directory, ProcessorSupplier<String, String, String, String> operations) {
        Properties settings = new Properties();
        settings.put("application.id", "app");
        settings.put("bootstrap.servers", "none:1");
        settings.put("state.dir", Path.of(directory, UUID.randomUUID().toString()).toString());
        Topology topology = new Topology();
        topology.addSource("in", new StringDeserializer(), new StringDeserializer(), "in");
        topology.addProcessor("operations", operations, "in");
        topology.addStateStore(builder(about), "operations");
        topology.addSink("out", "out", new StringSerializer(), new StringSerializer(), "operations");
        ObjectNode result = JSON.createObjectNode();
        ArrayNode found = result.putArray("found"), logged = result.putArray("logged");
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, settings, Instant.EPOCH)) {
            TestInputTopic<String, String> in = driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            TestOutputTopic<String, String> out = driver.createOutputTopic("out", new StringDeserializer(), new StringDeserializer());
            for (JsonNode op : about.get("ops")) {
                in.pipeInput(new TestRecord<>(op.get("k").asText(), op.toString(), headers(op.get("rh")), op.get("ts").asLong()));
                try {
                    found.add(JSON.readTree(out.readValue()));
                } catch (com.fasterxml.jackson.core.JsonProcessingException error) {
                    throw new RuntimeException(error);
                }
                ArrayNode step = logged.addArray();
                TestOutputTopic<byte[], byte[]> log = driver.createOutputTopic("app-s-changelog", new ByteArrayDeserializer(), new ByteArrayDeserializer());
                for (TestRecord<byte[], byte[]> record : log.readRecordsToList())
                    step.addArray().add(hex(record.key())).add(hex(record.value())).add(record.timestamp()).add(shown(record.headers()));
            }
        }
        return result;
    }

    static ArrayNode rowBytes(JsonNode rows) throws Exception {
        ArrayNode made = JSON.createArrayNode();
        for (JsonNode row : rows) {
            String name = row.has("t") ? "ValueTimestampHeaders" : "AggregationWithHeaders";
            Constructor<?> maker = Class.forName("org.apache.kafka.streams.state.internals." + name + "Serializer").getDeclaredConstructor(Serializer.class);
            maker.setAccessible(true);
            Object value = row.has("t") ? value(row) : AggregationWithHeaders.make(text(row.get("v")), headers(row.get("h")));
            made.add(hex(((Serializer<Object>) maker.newInstance(new StringSerializer())).serialize("t", value)));
        }
        return made;
    }

    public static void main(String[] args) throws Exception {
        JsonNode cases = JSON.readTree(Path.of(args[0]).toFile());
        ObjectNode all = JSON.createObjectNode();
        all.set("rows", rowBytes(cases.get("rows")));
        ArrayNode results = all.putArray("results");
        for (JsonNode one : cases.get("cases")) results.add(run(one, args[1], Operations::new));
        System.out.println(JSON.writeValueAsString(all));
    }
}
