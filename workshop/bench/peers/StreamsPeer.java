import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.stream.DoubleStream;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.state.WindowStore;

/**
 * One workload of the benchmarks on Kafka Streams itself: the same topology as in workloads.py, over the same topics.
 *
 * <p>Arguments are name=value pairs. Standard output carries one JSON line. It ends when standard input does, so that it never outlives
 * the benchmark that started it.
 */
public final class StreamsPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> LONG = Serdes.Long();

    private final Map<String, String> options = new HashMap<>();
    private final LongAdder seen = new LongAdder();
    private final CountDownLatch first = new CountDownLatch(1);
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    private StreamsPeer(String[] arguments) {
        for (String argument : arguments) {
            int split = argument.indexOf('=');
            options.put(argument.substring(0, split), argument.substring(split + 1));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Thread guard = new Thread(StreamsPeer::endWithParent, "guard");
        guard.setDaemon(true);
        guard.start();
        new StreamsPeer(arguments).run();
        System.exit(0);
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

    private void run() throws Exception {
        long wanted = Long.parseLong(option("records"));
        KafkaStreams streams = new KafkaStreams(topology().build(), settings());
        streams.setUncaughtExceptionHandler(error -> {
            failure.set(error);
            first.countDown();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        long deadline = System.nanoTime() + Long.parseLong(option("max-seconds")) * 1_000_000_000L;
        first.await();
        long after = Long.parseLong(option("after"));
        while (seen.sum() < after && failure.get() == null && System.nanoTime() < deadline) {
            Thread.sleep(2);
        }
        long before = after == 0 ? 0 : seen.sum();
        long began = System.nanoTime();
        long beganMs = System.currentTimeMillis();
        double cpuBefore = cpuSeconds();
        while (seen.sum() < wanted && failure.get() == null && System.nanoTime() < deadline) {
            Thread.sleep(2);
        }
        long ended = System.nanoTime();
        double cpu = cpuSeconds() - cpuBefore;
        long settle = Long.parseLong(option("settle-ms")) * 1_000_000L;
        double processed = processed(streams);
        for (long quietSince = ended; settle > 0 && System.nanoTime() - quietSince < settle && failure.get() == null; ) {
            Thread.sleep(10);
            if (processed != processed(streams)) { // records of repartition topics
                processed = processed(streams);
                quietSince = ended = System.nanoTime();
                cpu = cpuSeconds() - cpuBefore;
            }
        }
        double seconds = (ended - began) / 1e9;
        long records = seen.sum();
        double commitMs = threadMetrics(streams, "commit-latency-avg").average().orElse(0);
        CloseOptions leaving = CloseOptions.timeout(Duration.ofSeconds(30))
            .withGroupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP);
        boolean closed = streams.close(leaving); // commits what is processed
        if (failure.get() != null) {
            throw new IllegalStateException("the application failed", failure.get());
        }
        System.out.printf(Locale.ROOT,
            "{\"records\": %d, \"measured\": %d, \"began_ms\": %d, \"seconds\": %.4f, \"cpu_seconds\": %.2f, "
            + "\"commit_ms\": %.2f, \"closed\": %b, \"sending\": \"%s\"}%n",
            records, records - before, beganMs, seconds, cpu, commitMs, closed, sending());
        System.out.flush();
    }

    private StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        String out = option("output");
        String workload = option("workload");
        if (!option("twins").isEmpty()) {
            switch (option("twins")) {
                case "nexmark" -> new NexmarkTwins(builder, options, this::saw).build(workload);
                case "theodolite" -> new TheodoliteTwins(builder, options, this::saw).build(workload);
                default -> throw new IllegalArgumentException(option("twins"));
            }
            return builder;
        }
        KTable<String, String> users = workload.equals("join") ? builder.table(option("table"), Materialized.as("users")) : null;
        KStream<String, String> input = builder.stream(option("input"));
        boolean sawLater = workload.equals("grown-rekeyed"); // behind its repartition
        KStream<String, String> stream = sawLater ? input : input.peek((key, value) -> saw());
        switch (workload) {
            case "passing" -> stream.mapValues(value -> value).to(out);
            case "stateless" -> stream
                .mapValues(StreamsPeer::parsed)
                .filter((key, value) -> value.get("amount").asInt() > 500)
                .mapValues(value -> value.get("item").asText() + ":" + value.get("amount").asInt())
                .to(out);
            case "count" -> stream.groupByKey().count(Materialized.as("counts")).toStream().to(out, Produced.with(TEXT, LONG));
            case "sum" -> stream
                .mapValues(value -> parsed(value).get("amount").asLong())
                .groupByKey(Grouped.with(TEXT, LONG))
                .reduce(Long::sum, Materialized.as("sums"))
                .toStream()
                .to(out, Produced.with(TEXT, LONG));
            case "window" -> stream
                .groupByKey()
                .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(1)))
                .count(Materialized.as("wcounts"))
                .toStream()
                .to(out, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 1000), LONG));
            case "hours" -> stream
                .selectKey((key, value) -> value)
                .groupByKey()
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofHours(1), Duration.ofMillis(Long.parseLong(option("grace-ms")))))
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("hours").withRetention(Duration.ofDays(10)))
                .toStream()
                .to(out, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 3_600_000), LONG));
            case "grown-count", "grown-rekeyed", "grown-window" -> grown(workload, stream, out);
            case "join" -> stream.join(users, (value, row) -> row + "|" + parsed(value).get("amount").asInt()).to(out);
            default -> throw new IllegalArgumentException(workload);
        }
        return builder;
    }

    /** Counts of `state_growth.py`: so many nodes, then so many counts of one kind. */
    private void grown(String kind, KStream<String, String> stream, String out) {
        for (int node = 0; node < Integer.parseInt(option("nodes")); node++) {
            stream = stream.mapValues(value -> value);
        }
        if (kind.equals("grown-rekeyed")) {
            stream = stream.selectKey((key, value) -> value).repartition(Repartitioned.with(TEXT, TEXT)).peek((key, value) -> saw());
        }
        KGroupedStream<String, String> groups = stream.groupByKey(Grouped.with(TEXT, TEXT));
        for (int store = 0; store < Integer.parseInt(option("stores")); store++) {
            String name = "counts-" + store;
            if (kind.equals("grown-window")) {
                groups.windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(1)))
                    .count(Materialized.as(name))
                    .toStream()
                    .to(out, Produced.with(WindowedSerdes.timeWindowedSerdeFrom(String.class, 1000), LONG));
            } else {
                groups.count(Materialized.as(name)).toStream().to(out, Produced.with(TEXT, LONG));
            }
        }
    }

    private void saw() {
        seen.increment();
        if (first.getCount() > 0) {
            first.countDown();
        }
    }

    /** Records processed by all threads, those of repartition topics included. */
    private static double processed(KafkaStreams streams) {
        return threadMetrics(streams, "process-total").sum();
    }

    private static DoubleStream threadMetrics(KafkaStreams streams, String name) {
        return streams.metrics().values().stream()
            .filter(metric -> metric.metricName().name().equals(name) && metric.metricName().group().equals("stream-thread-metrics"))
            .mapToDouble(metric -> (Double) metric.metricValue())
            .filter(Double::isFinite);
    }

    private Properties settings() {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, option("application"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, option("bootstrap"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, option("threads"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, option("guarantee"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, option("commit-ms"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, option("state-dir"));
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");
        options.forEach((name, value) -> {
            if (name.startsWith("producer.")) {
                settings.put(name, value);
            }
        });
        if (!option("cache-bytes").isEmpty()) {
            settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, option("cache-bytes"));
        }
        return settings;
    }

    /** The producers' linger and compression, defaults included. */
    private String sending() {
        Map<String, Object> producer = new StreamsConfig(settings()).getProducerConfigs("");
        return "linger " + producer.get("linger.ms") + " ms, " + producer.getOrDefault("compression.type", "none");
    }

    private String option(String name) {
        String value = options.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing argument " + name + "=");
        }
        return value;
    }

    private static JsonNode parsed(String value) {
        try {
            return JSON.readTree(value);
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }

    private static double cpuSeconds() {
        var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        return system.getProcessCpuTime() / 1e9;
    }
}
