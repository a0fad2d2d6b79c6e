import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.FileInputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.StringJoiner;
import java.util.zip.CRC32;

/**
 * Values with a schema in one thread's memory: read, change one field, write; no Kafka and no Kafka Streams.
 *
 * <p>Arguments are name=value pairs: values (avro or protobuf), registry, file (each value after its length in four bytes), warm (passes
 * before the clock runs) and runs. Standard output carries one JSON line: values per second of each run, and a checksum of what the last
 * one has written.
 */
public final class SchemaPeer {
    private SchemaPeer() {}

    public static void main(String[] arguments) throws IOException {
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            int split = argument.indexOf('=');
            options.put(argument.substring(0, split), argument.substring(split + 1));
        }
        List<byte[]> given = read(options.get("file"));
        SchemaValues values = new SchemaValues(options.get("values"), options.get("registry"));
        byte[][] written = new byte[given.size()][];
        int warm = Integer.parseInt(options.get("warm"));
        StringJoiner rates = new StringJoiner(", ");
        for (int run = -warm; run < Integer.parseInt(options.get("runs")); run++) {
            long began = System.nanoTime();
            for (int at = 0; at < written.length; at++) {
                written[at] = values.serialize(null, SchemaValues.with(values.deserialize(null, given.get(at)), "amount", 1L));
            }
            if (run >= 0) {
                rates.add(String.format(Locale.ROOT, "%.0f", written.length * 1e9 / (System.nanoTime() - began)));
            }
        }
        CRC32 sum = new CRC32();
        for (byte[] one : written) {
            sum.update(one);
        }
        System.out.printf("{\"rates\": [%s], \"crc\": %d}%n", rates, sum.getValue());
    }

    private static List<byte[]> read(String file) throws IOException {
        List<byte[]> found = new ArrayList<>();
        try (var stream = new DataInputStream(new BufferedInputStream(new FileInputStream(file)))) {
            while (stream.available() > 0) {
                byte[] value = new byte[stream.readInt()];
                stream.readFully(value);
                found.add(value);
            }
        }
        return found;
    }
}
