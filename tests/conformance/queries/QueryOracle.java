import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.*;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.*;
import org.apache.kafka.streams.state.*;

/**
 * Runs Kafka Streams on a broker, fills its stores with the events of a file, runs the file's queries, and prints their results.
 * usage: QueryOracle BOOTSTRAP CASES.json STATE_DIRECTORY > RESULTS.json
 */
public class QueryOracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final String[] STORES = {"kv", "tskv", "window", "tswindow", "session", "versioned"};

    public static class Fill extends ContextualProcessor<String, String, Void, Void> {
        @Override
        public void process(Record<String, String> record) {
            try {
                JsonNode event = JSON.readTree(record.value());
                for (String store : event.get("store").asText().equals("*") ? STORES : new String[] {event.get("store").asText()}) {
                    put(store, record.key(), text(event.get("v")), record.timestamp(), event);
                }
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        }

        private void put(String store, String key, String value, long time, JsonNode event) {
            switch (store) {
                case "kv" -> ((KeyValueStore<String, String>) context().<KeyValueStore<String, String>>getStateStore(store)).put(key, value);
                case "tskv" -> ((TimestampedKeyValueStore<String, String>) context().<TimestampedKeyValueStore<String, String>>getStateStore(store))
                    .put(key, ValueAndTimestamp.make(value, time));
                case "window" -> ((WindowStore<String, String>) context().<WindowStore<String, String>>getStateStore(store)).put(key, value, time);
                case "tswindow" -> ((TimestampedWindowStore<String, String>) context().<TimestampedWindowStore<String, String>>getStateStore(store))
                    .put(key, ValueAndTimestamp.make(value, time + 1), time);
                case "session" -> ((SessionStore<String, String>) context().<SessionStore<String, String>>getStateStore(store))
                    .put(new Windowed<>(key, new SessionWindow(time - event.path("length").asLong(0), time)), value);
                default -> ((VersionedKeyValueStore<String, String>) context().<VersionedKeyValueStore<String, String>>getStateStore(store))
                    .put(key, value, time);
            }
        }
    }

    static String text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    static Topology topology(JsonNode cases) {
        long retention = cases.get("retention_ms").asLong();
        long size = cases.get("window_size_ms").asLong();
        Serde<String> s = Serdes.String();
        Topology topology = new Topology();
        topology.addSource("source", s.deserializer(), s.deserializer(), cases.get("topic").asText());
        topology.addProcessor("fill", Fill::new, "source");
        List<StoreBuilder<?>> builders = List.of(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("kv"), s, s),
            Stores.timestampedKeyValueStoreBuilder(Stores.persistentTimestampedKeyValueStore("tskv"), s, s),
            Stores.windowStoreBuilder(Stores.persistentWindowStore("window", Duration.ofMillis(retention), Duration.ofMillis(size), false), s, s),
            Stores.timestampedWindowStoreBuilder(
                Stores.persistentTimestampedWindowStore("tswindow", Duration.ofMillis(retention), Duration.ofMillis(size), false), s, s),
            Stores.sessionStoreBuilder(Stores.persistentSessionStore("session", Duration.ofMillis(retention)), s, s),
            Stores.versionedKeyValueStoreBuilder(Stores.persistentVersionedKeyValueStore("versioned", Duration.ofMillis(retention)), s, s));
        for (StoreBuilder<?> builder : builders) {
            topology.addStateStore(builder.withCachingDisabled(), "fill");
        }
        return topology;
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode cases = JSON.readTree(new File(arguments[1]));
        String topic = cases.get("topic").asText();
        Map<String, Object> client = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(client)) {
            admin.createTopics(List.of(new NewTopic(topic, cases.get("partitions").asInt(), (short) 1))).all().get();
        }
        Map<Integer, Long> ends = new HashMap<>();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(new HashMap<>(client), new StringSerializer(), new StringSerializer())) {
            for (JsonNode event : cases.get("events")) {
                int partition = event.get("p").asInt();
                producer.send(new ProducerRecord<>(topic, partition, event.get("ts").asLong(), event.get("k").asText(), event.toString()));
                ends.merge(partition, 0L, (before, none) -> before + 1);
            }
        }
        Properties properties = new Properties();
        properties.put("application.id", "oracle-" + topic);
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("state.dir", arguments[2]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("commit.interval.ms", "100");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("log.summary.interval.ms", "-1");
        List<Object> results = new ArrayList<>();
        try (KafkaStreams streams = new KafkaStreams(topology(cases), properties)) {
            streams.setUncaughtExceptionHandler(error -> {
                error.printStackTrace();
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            await(streams, topic, ends);
            for (JsonNode query : cases.get("queries")) {
                results.add(query.has("read") ? readV1(streams, query) : runV2(streams, query, topic));
            }
        }
        JSON.writeValue(System.out, results);
    }

    static void await(KafkaStreams streams, String topic, Map<Integer, Long> ends) throws Exception {
        long deadline = System.currentTimeMillis() + 240_000;
        while (System.currentTimeMillis() < deadline) {
            try {
                StateQueryRequest<VersionedRecord<String>> request =
                    StateQueryRequest.inStore("versioned").withQuery(VersionedKeyQuery.<String, String>withKey("x"));
                StateQueryResult<VersionedRecord<String>> result = streams.query(request);
                Map<Integer, Long> reached = new HashMap<>();
                for (Map.Entry<Integer, ? extends QueryResult<?>> part : result.getPartitionResults().entrySet()) {
                    if (part.getValue().isSuccess()) {
                        reached.putAll(part.getValue().getPosition().getPartitionPositions(topic));
                    }
                }
                if (reached.equals(ends)) {
                    return;
                }
            } catch (org.apache.kafka.streams.errors.InvalidStateStoreException notYet) {
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("the stores did not reach " + ends);
    }

    // ---- v2

    static Query<?> query(JsonNode q) {
        String key = text(q.get("key"));
        String lower = text(q.get("lower"));
        String upper = text(q.get("upper"));
        String order = q.path("order").asText("any");
        switch (q.get("query").asText()) {
            case "key": {
                KeyQuery<String, Object> made = KeyQuery.withKey(key);
                return q.has("skip_cache") ? made.skipCache() : made;
            }
            case "timestamped_key": return TimestampedKeyQuery.withKey(key);
            case "range": {
                RangeQuery<String, Object> made = RangeQuery.withRange(lower, upper);
                return order.equals("ascending") ? made.withAscendingKeys() : order.equals("descending") ? made.withDescendingKeys() : made;
            }
            case "timestamped_range": {
                TimestampedRangeQuery<String, Object> made = TimestampedRangeQuery.withRange(lower, upper);
                return order.equals("ascending") ? made.withAscendingKeys() : order.equals("descending") ? made.withDescendingKeys() : made;
            }
            case "window_key":
                return WindowKeyQuery.withKeyAndWindowStartRange(key, Instant.ofEpochMilli(q.get("from").asLong()), Instant.ofEpochMilli(q.get("to").asLong()));
            case "window_range":
                return key != null
                    ? WindowRangeQuery.withKey(key)
                    : WindowRangeQuery.withWindowStartRange(Instant.ofEpochMilli(q.get("from").asLong()), Instant.ofEpochMilli(q.get("to").asLong()));
            case "versioned_key": {
                VersionedKeyQuery<String, Object> made = VersionedKeyQuery.withKey(key);
                return q.has("as_of") ? made.asOf(Instant.ofEpochMilli(q.get("as_of").asLong())) : made;
            }
            default: {
                MultiVersionedKeyQuery<String, Object> made = MultiVersionedKeyQuery.withKey(key);
                if (q.has("from")) {
                    made = made.fromTime(Instant.ofEpochMilli(q.get("from").asLong()));
                }
                if (q.has("to")) {
                    made = made.toTime(Instant.ofEpochMilli(q.get("to").asLong()));
                }
                return order.equals("ascending") ? made.withAscendingTimestamps() : order.equals("descending") ? made.withDescendingTimestamps() : made;
            }
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Object runV2(KafkaStreams streams, JsonNode q, String topic) {
        Map<String, Object> shown = new TreeMap<>();
        try {
            StateQueryRequest request = StateQueryRequest.inStore(q.get("store").asText()).withQuery((Query) query(q));
            if (q.has("partitions")) {
                Set<Integer> partitions = new HashSet<>();
                q.get("partitions").forEach(partition -> partitions.add(partition.asInt()));
                request = request.withPartitions(partitions);
            }
            if (q.has("bound")) {
                Position bound = Position.emptyPosition();
                for (Iterator<String> names = q.get("bound").fieldNames(); names.hasNext(); ) {
                    String partition = names.next();
                    bound = bound.withComponent(topic, Integer.parseInt(partition), q.get("bound").get(partition).asLong());
                }
                request = request.withPositionBound(PositionBound.at(bound));
            }
            if (q.has("require_active")) {
                request = request.requireActive();
            }
            StateQueryResult<?> result = streams.query(request);
            for (Map.Entry<Integer, ? extends QueryResult<?>> part : result.getPartitionResults().entrySet()) {
                QueryResult<?> one = part.getValue();
                Map<String, Object> told = new TreeMap<>();
                if (one.isFailure()) {
                    told.put("failure", one.getFailureReason().toString());
                } else {
                    told.put("result", show(one.getResult()));
                }
                if (one.getPosition() != null) {
                    told.put("position", one.getPosition().getPartitionPositions(topic));
                }
                shown.put(String.valueOf(part.getKey()), told);
            }
            return Map.of("partitions", shown);
        } catch (Exception error) {
            return Map.of("error", error.getClass().getSimpleName());
        }
    }

    // ---- v1

    static QueryableStoreType<?> type(String name) {
        return switch (name) {
            case "key_value_store" -> QueryableStoreTypes.keyValueStore();
            case "timestamped_key_value_store" -> QueryableStoreTypes.timestampedKeyValueStore();
            case "window_store" -> QueryableStoreTypes.windowStore();
            case "timestamped_window_store" -> QueryableStoreTypes.timestampedWindowStore();
            default -> QueryableStoreTypes.sessionStore();
        };
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static class Parts implements QueryableStoreType<List<ReadOnlySessionStore<String, Object>>> {
        @Override
        public boolean accepts(org.apache.kafka.streams.processor.StateStore store) {
            return store instanceof ReadOnlySessionStore;
        }

        @Override
        public List<ReadOnlySessionStore<String, Object>> create(
            org.apache.kafka.streams.state.internals.StateStoreProvider provider, String name) {
            return (List) provider.stores(name, (QueryableStoreType) this);
        }
    }

    @SuppressWarnings("unchecked")
    static Object readV1(KafkaStreams streams, JsonNode q) {
        try {
            StoreQueryParameters<?> asked = StoreQueryParameters.fromNameAndType(q.get("store").asText(), type(q.get("type").asText()));
            if (q.has("partition")) {
                asked = asked.withPartition(q.get("partition").asInt());
            }
            if (q.get("read").asText().contains("find_sessions")) { // the composite does not have them: ask the stores themselves
                List<Object> rows = new ArrayList<>();
                StoreQueryParameters<List<ReadOnlySessionStore<String, Object>>> parts =
                    StoreQueryParameters.fromNameAndType(q.get("store").asText(), new Parts());
                if (q.has("partition")) {
                    parts = parts.withPartition(q.get("partition").asInt());
                }
                for (ReadOnlySessionStore<String, Object> store : streams.store(parts)) {
                    rows.addAll((List<Object>) show(read(store, q.get("read").asText(), q.get("args"))));
                }
                return Collections.singletonMap("result", rows);
            }
            return Collections.singletonMap("result", show(read(streams.store(asked), q.get("read").asText(), q.get("args"))));
        } catch (Exception error) {
            return Map.of("error", error.getClass().getSimpleName());
        }
    }

    static Instant at(JsonNode args, int index) {
        return Instant.ofEpochMilli(args.get(index).asLong());
    }

    @SuppressWarnings("unchecked")
    static Object read(Object store, String read, JsonNode a) {
        if (store instanceof ReadOnlyKeyValueStore<?, ?> some) {
            ReadOnlyKeyValueStore<String, Object> kv = (ReadOnlyKeyValueStore<String, Object>) some;
            return switch (read) {
                case "get" -> kv.get(text(a.get(0)));
                case "range" -> kv.range(text(a.get(0)), text(a.get(1)));
                case "reverse_range" -> kv.reverseRange(text(a.get(0)), text(a.get(1)));
                case "all" -> kv.all();
                case "reverse_all" -> kv.reverseAll();
                default -> kv.prefixScan(text(a.get(0)), new StringSerializer());
            };
        }
        if (store instanceof ReadOnlyWindowStore<?, ?> some) {
            ReadOnlyWindowStore<String, Object> window = (ReadOnlyWindowStore<String, Object>) some;
            return switch (read) {
                case "fetch" -> a.size() == 2 ? window.fetch(text(a.get(0)), a.get(1).asLong()) : window.fetch(text(a.get(0)), at(a, 1), at(a, 2));
                case "backward_fetch" -> window.backwardFetch(text(a.get(0)), at(a, 1), at(a, 2));
                case "fetch_range" -> window.fetch(text(a.get(0)), text(a.get(1)), at(a, 2), at(a, 3));
                case "backward_fetch_range" -> window.backwardFetch(text(a.get(0)), text(a.get(1)), at(a, 2), at(a, 3));
                case "fetch_all" -> window.fetchAll(at(a, 0), at(a, 1));
                case "backward_fetch_all" -> window.backwardFetchAll(at(a, 0), at(a, 1));
                case "all" -> window.all();
                default -> window.backwardAll();
            };
        }
        ReadOnlySessionStore<String, Object> session = (ReadOnlySessionStore<String, Object>) store;
        return switch (read) {
            case "fetch" -> session.fetch(text(a.get(0)));
            case "backward_fetch" -> session.backwardFetch(text(a.get(0)));
            case "fetch_range" -> session.fetch(text(a.get(0)), text(a.get(1)));
            case "backward_fetch_range" -> session.backwardFetch(text(a.get(0)), text(a.get(1)));
            case "fetch_session" -> session.fetchSession(text(a.get(0)), a.get(1).asLong(), a.get(2).asLong());
            case "find_sessions" -> session.findSessions(text(a.get(0)), at(a, 1), at(a, 2));
            case "backward_find_sessions" -> session.backwardFindSessions(text(a.get(0)), at(a, 1), at(a, 2));
            case "find_sessions_range" -> session.findSessions(text(a.get(0)), text(a.get(1)), at(a, 2), at(a, 3));
            default -> session.backwardFindSessions(text(a.get(0)), text(a.get(1)), at(a, 2), at(a, 3));
        };
    }

    // ---- what is printed

    static Object show(Object value) {
        if (value instanceof Iterator<?> rows) {
            List<Object> shown = new ArrayList<>();
            rows.forEachRemaining(row -> shown.add(show(row)));
            return shown;
        }
        if (value instanceof KeyValue<?, ?> row) {
            return Arrays.asList(show(row.key), show(row.value));
        }
        if (value instanceof Windowed<?> key) {
            return Arrays.asList(key.key(), key.window().start(), key.window().end());
        }
        if (value instanceof ValueAndTimestamp<?> stamped) {
            return Arrays.asList(stamped.value(), stamped.timestamp());
        }
        if (value instanceof VersionedRecord<?> version) {
            return Arrays.asList(version.value(), version.timestamp(), version.validTo().orElse(null));
        }
        return value;
    }
}
