import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.io.IOException;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * The calls of bench async on confluent's parallel-consumer: each record waits as many microseconds as its value says, in key order.
 *
 * <p>Arguments are name=value pairs. Standard output carries one JSON line. It ends when standard input does.
 */
public final class ParallelConsumerPeer {
    public static void main(String[] arguments) throws Exception {
        Thread guard = new Thread(ParallelConsumerPeer::endWithParent, "guard");
        guard.setDaemon(true);
        guard.start();
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            int split = argument.indexOf('=');
            options.put(argument.substring(0, split), argument.substring(split + 1));
        }
        run(options);
        System.exit(0);
    }

    private static void run(Map<String, String> options) throws Exception {
        int records = Integer.parseInt(options.get("records"));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", options.get("bootstrap"));
        settings.put("group.id", options.get("application"));
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        ParallelConsumerOptions<String, String> parallel = ParallelConsumerOptions.<String, String>builder()
                .consumer(consumer)
                .ordering(ParallelConsumerOptions.ProcessingOrder.KEY)
                .maxConcurrency(Integer.parseInt(options.get("in-flight")))
                .build();
        ParallelStreamProcessor<String, String> processor = ParallelStreamProcessor.createEosStreamProcessor(parallel);
        processor.subscribe(List.of(options.get("input")));
        AtomicLong began = new AtomicLong(Long.MAX_VALUE);
        AtomicLong ended = new AtomicLong();
        AtomicInteger done = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(1);
        processor.poll(context -> {
            long start = System.nanoTime();
            began.accumulateAndGet(start, Math::min);
            waitUntil(start + Long.parseLong(context.value()) * 1_000);
            ended.accumulateAndGet(System.nanoTime(), Math::max);
            if (done.incrementAndGet() >= records) {
                all.countDown();
            }
        });
        all.await(Long.parseLong(options.get("max-seconds")), TimeUnit.SECONDS);
        double seconds = (ended.get() - began.get()) / 1e9;
        System.out.println(String.format(Locale.ROOT, "{\"records\": %d, \"seconds\": %.4f}", done.get(), seconds));
        System.out.flush();
        processor.close(Duration.ofSeconds(5), io.confluent.parallelconsumer.internal.DrainingCloseable.DrainingMode.DONT_DRAIN);
    }

    private static void waitUntil(long due) {
        long left = due - System.nanoTime();
        while (left > 0) {
            LockSupport.parkNanos(left);
            left = due - System.nanoTime();
        }
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
