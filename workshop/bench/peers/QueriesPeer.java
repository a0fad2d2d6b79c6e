import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * A count on Kafka Streams with its store behind the JDK's HTTP server: the routes of our query server for one key and for many keys,
 * with answers that have key and value.
 *
 * <p>Arguments are name=value pairs. Standard output carries one JSON line once so many records are processed: the port. It ends when
 * standard input does.
 */
public final class QueriesPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PATH = "/state/stores/counts";

    private static ReadOnlyKeyValueStore<String, Long> counts;

    private QueriesPeer() {
    }

    public static void main(String[] arguments) throws Exception {
        Thread guard = new Thread(QueriesPeer::endWithParent, "guard");
        guard.setDaemon(true);
        guard.start();
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            int split = argument.indexOf('=');
            options.put(argument.substring(0, split), argument.substring(split + 1));
        }
        LongAdder seen = new LongAdder();
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> stream = builder.<String, String>stream(options.get("input")).peek((key, value) -> seen.increment());
        stream.groupByKey().count(Materialized.as("counts"));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(options));
        streams.start();
        long wanted = Long.parseLong(options.get("records"));
        long deadline = System.nanoTime() + Long.parseLong(options.get("max-seconds")) * 1_000_000_000L;
        while (seen.sum() < wanted || streams.state() != KafkaStreams.State.RUNNING) {
            if (System.nanoTime() > deadline || streams.state() == KafkaStreams.State.ERROR) {
                throw new IllegalStateException("processed " + seen.sum() + " records, state " + streams.state());
            }
            Thread.sleep(10);
        }
        Thread.sleep(2 * Long.parseLong(options.get("commit-ms"))); // the record caches are flushed with the commit
        counts = streams.store(StoreQueryParameters.fromNameAndType("counts", QueryableStoreTypes.keyValueStore()));
        HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 128);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext(PATH, QueriesPeer::answer);
        server.start();
        System.out.println("{\"port\": " + server.getAddress().getPort() + "}");
        System.out.flush();
        Thread.currentThread().join();
    }

    private static void answer(HttpExchange exchange) throws IOException {
        Object content;
        if (exchange.getRequestMethod().equals("POST")) {
            List<Object> rows = new ArrayList<>();
            for (JsonNode key : JSON.readTree(exchange.getRequestBody()).get("keys")) {
                Long value = counts.get(key.asText());
                if (value != null) {
                    rows.add(Map.of("key", key.asText(), "value", value));
                }
            }
            content = Map.of("rows", rows);
        } else {
            String key = exchange.getRequestURI().getPath().substring(PATH.length() + 1);
            Long value = counts.get(key);
            content = value == null ? Map.of("key", key, "found", false) : Map.of("key", key, "found", true, "value", value);
        }
        byte[] body = JSON.writeValueAsBytes(content);
        exchange.getResponseHeaders().add("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }

    private static Properties settings(Map<String, String> options) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, options.get("application"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.get("bootstrap"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, options.get("threads"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, options.get("guarantee"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, options.get("commit-ms"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, options.get("state-dir"));
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }

    private static void endWithParent() {
        try {
            while (System.in.read() >= 0) {
                // what is sent does not matter, only that the pipe is open
            }
        } catch (IOException gone) {
            // as if it had been closed
        }
        Runtime.getRuntime().halt(3);
    }
}
