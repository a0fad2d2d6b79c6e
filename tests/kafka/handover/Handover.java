import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TableJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.internals.TopicPartitionMetadata;
import org.apache.kafka.streams.query.StateQueryRequest;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.ReadOnlySessionStore;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;

/**
 * Kafka Streams itself, for the tests that hand an application over: the same topology as in handing_over.py. Commands are lines on standard input, each
 * answered by one line; it ends when standard input does.
 *
 * <p>describe APP IN | start APP IN GUARANTEE STATE_DIR | state APP | stop APP | times GROUP | rows APP STORE KIND
 */
public final class Handover {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();

    private final String bootstrap;
    private final Map<String, KafkaStreams> running = new HashMap<>();
    private final Map<String, Throwable> failures = new ConcurrentHashMap<>();

    private Handover(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Handover handover = new Handover(arguments[0]);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = commands.readLine()) != null; ) {
            String answer;
            try {
                answer = handover.answer(line.split(" "));
            } catch (Exception problem) {
                answer = "error " + problem;
            }
            System.out.println(answer.replace("\n", "\\n"));
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "describe":
                return topology(words[1], words[2]).describe().toString();
            case "start":
                KafkaStreams made = new KafkaStreams(topology(words[1], words[2]), settings(words[1], words[3], words[4]));
                made.setUncaughtExceptionHandler(error -> {
                    failures.put(words[1], error);
                    return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                });
                running.put(words[1], made);
                made.start();
                return "started";
            case "stop":
                CloseOptions leaving = CloseOptions.timeout(Duration.ofSeconds(30))
                    .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
                boolean closed = running.remove(words[1]).close(leaving);
                Throwable failure = failures.remove(words[1]);
                return failure != null ? "error " + failure + " <- " + failure.getCause() : closed ? "stopped" : "error not closed in time";
            case "state":
                Throwable met = failures.get(words[1]);
                return met == null ? running.get(words[1]).state().toString() : "error " + met + " <- " + met.getCause();
            case "times":
                return times(words[1]);
            case "rows":
                return String.join("\n", rows(running.get(words[1]), words[2], words[3]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    /** What its own interactive queries answer: key, start and end of the window, value, timestamp, with a bar between them; "-" for none. */
    private static List<String> rows(KafkaStreams streams, String store, String kind) {
        List<String> rows = new ArrayList<>();
        switch (kind) {
            case "key-value":
                ReadOnlyKeyValueStore<String, ValueAndTimestamp<Object>> values =
                    streams.store(StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.timestampedKeyValueStore()));
                values.all().forEachRemaining(row -> rows.add(row.key + "|-|-|" + row.value.value() + "|" + row.value.timestamp()));
                return rows;
            case "window":
                ReadOnlyWindowStore<String, ValueAndTimestamp<Object>> windows =
                    streams.store(StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.timestampedWindowStore()));
                windows.all().forEachRemaining(row -> rows.add(row.key.key() + "|" + row.key.window().start() + "|" + row.key.window().end()
                    + "|" + row.value.value() + "|" + row.value.timestamp()));
                return rows;
            case "session":
                ReadOnlySessionStore<String, Object> sessions =
                    streams.store(StoreQueryParameters.fromNameAndType(store, QueryableStoreTypes.sessionStore()));
                sessions.fetch(null, (String) null).forEachRemaining(row -> rows.add(row.key.key() + "|" + row.key.window().start() + "|"
                    + row.key.window().end() + "|" + row.value + "|-"));
                return rows;
            case "versioned":
                for (int number = 0; number < 10; number++) {
                    String key = "k" + number;
                    streams.query(StateQueryRequest.inStore(store).withQuery(VersionedKeyQuery.<String, Object>withKey(key)))
                        .getPartitionResults().values().forEach(answer -> {
                            if (answer.isSuccess() && answer.getResult() != null) {
                                rows.add(key + "|-|-|" + answer.getResult().value() + "|" + answer.getResult().timestamp());
                            }
                        });
                }
                return rows;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    /** What the JVM reads beside each committed offset. */
    private String times(String group) throws Exception {
        StringBuilder found = new StringBuilder();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().forEach((at, committed) ->
                found.append(at).append('=').append(TopicPartitionMetadata.decode(committed.metadata()).partitionTime()).append(' '));
        }
        return found.toString().trim();
    }

    private Properties settings(String application, String guarantee, String stateDirectory) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, guarantee);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, stateDirectory);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put("auto.offset.reset", "earliest");
        // Results that leave by the wall clock (once a second) leave as soon as stream time says so, as in the project.
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0L);
        settings.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0L);
        return settings;
    }

    private static Serde<Windowed<String>> windowed(long size) {
        return WindowedSerdes.timeWindowedSerdeFrom(String.class, size);
    }

    private static Duration seconds(long count) {
        return Duration.ofSeconds(count);
    }

    /** All kinds of stores in one application; its output topics begin with its name. */
    private static Topology topology(String application, String input) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> stream = builder.stream(input + "-in", Consumed.with(TEXT, TEXT));
        stream.groupByKey().count(Materialized.as("counts"))
            .toStream().to(application + "-counts", Produced.with(TEXT, LONG));
        stream.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(seconds(10), seconds(5)).advanceBy(seconds(5)))
            .count(Materialized.as("windows"))
            .toStream().to(application + "-windows", Produced.with(windowed(10_000), LONG));
        stream.groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(seconds(3), seconds(5)))
            .count(Materialized.as("sessions"))
            .toStream().to(application + "-sessions", Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), LONG));
        stream.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(seconds(7), seconds(2)))
            .count(Materialized.as("held"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()).withName("final"))
            .toStream().to(application + "-suppressed", Produced.with(windowed(7_000), LONG));
        stream.groupByKey().windowedBy(TimeWindows.ofSizeAndGrace(seconds(8), seconds(2)))
            .emitStrategy(EmitStrategy.onWindowClose())
            .count(Materialized.<String, Long>as(Stores.persistentTimestampedWindowStore("closed", seconds(600), seconds(8), false))
                .withKeySerde(TEXT).withValueSerde(LONG))
            .toStream().to(application + "-closed", Produced.with(windowed(8_000), LONG));
        stream.leftJoin(builder.stream(input + "-right", Consumed.with(TEXT, TEXT)), (left, right) -> left + "/" + right,
                JoinWindows.ofTimeDifferenceAndGrace(seconds(2), seconds(1)),
                StreamJoined.with(TEXT, TEXT, TEXT).withName("pairing").withStoreName("pairs"))
            .to(application + "-pairs");
        KTable<String, String> rates = builder.table(input + "-rates",
            Materialized.<String, String>as(Stores.persistentVersionedKeyValueStore("rates", seconds(60)))
                .withKeySerde(TEXT).withValueSerde(TEXT));
        stream.join(rates, (value, rate) -> value + "*" + rate, Joined.with(TEXT, TEXT, TEXT, "rating"))
            .to(application + "-rated");
        KTable<String, String> orders = builder.table(input + "-orders", Materialized.as("orders"));
        KTable<String, String> people = builder.table(input + "-people", Materialized.as("people"));
        orders.join(people, value -> value.substring(0, 2), (order, person) -> order + "@" + person, TableJoined.as("owner"),
                Materialized.as("owned"))
            .toStream().to(application + "-owned");
        return builder.build();
    }
}
