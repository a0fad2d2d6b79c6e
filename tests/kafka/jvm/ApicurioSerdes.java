import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.Message;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.Encoder;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Apicurio's serdes with the wire format of Confluent's (a byte 0 and a content id in four bytes), for golden bytes.
 *
 * Each line of standard input is a request, each line of standard output its answer: {"data": base64} of "write", {"value": …} of
 * "read", {"error": text}. Avro values are in Avro's JSON encoding, Protobuf values the bytes of the message in base64.
 */
public final class ApicurioSerdes {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer(JSON.readTree(line), answer);
            } catch (Throwable error) {
                error.printStackTrace();
                answer.put("error", error.toString());
            }
            answers.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
    }

    private static void answer(JsonNode request, ObjectNode answer) throws Exception {
        String format = request.get("format").asText();
        String topic = request.get("topic").asText();
        boolean key = request.get("part").asText().equals("key");
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.id-handler", "io.apicurio.registry.serde.Legacy4ByteIdHandler");
        settings.put("apicurio.registry.use-id", "contentId");
        settings.put("apicurio.registry.headers.enabled", false);
        request.get("settings").fields().forEachRemaining(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        if (request.get("op").asText().equals("write")) {
            Serializer<Object> serializer = serializer(format);
            serializer.configure(settings, key);
            answer.put("data", base64(serializer.serialize(topic, given(format, request))));
            serializer.close();
        } else {
            Deserializer<?> deserializer = deserializer(format);
            deserializer.configure(settings, key);
            Object value = deserializer.deserialize(topic, Base64.getDecoder().decode(request.get("data").asText()));
            answer.set("value", shown(format, value, request));
            deserializer.close();
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Serializer<Object> serializer(String format) {
        switch (format) {
            case "avro": return (Serializer) new AvroKafkaSerializer<Object>();
            case "json": return (Serializer) new JsonSchemaKafkaSerializer<Object>();
            default: return (Serializer) new ProtobufKafkaSerializer<Message>();
        }
    }

    private static Deserializer<?> deserializer(String format) {
        switch (format) {
            case "avro": return new AvroKafkaDeserializer<Object>();
            case "json": return new JsonSchemaKafkaDeserializer<Object>();
            default: return new ProtobufKafkaDeserializer<Message>();
        }
    }

    private static Object given(String format, JsonNode request) throws Exception {
        JsonNode value = request.get("value");
        if (format.equals("avro")) {
            Schema schema = new Schema.Parser().parse(request.get("schema").asText());
            return new GenericDatumReader<Object>(schema).read(null, DecoderFactory.get().jsonDecoder(schema, value.toString()));
        }
        if (format.equals("json")) {
            return value;
        }
        return DynamicMessage.parseFrom(descriptor(request), Base64.getDecoder().decode(value.asText()));
    }

    private static JsonNode shown(String format, Object value, JsonNode request) throws Exception {
        if (format.equals("avro")) {
            Schema schema = new Schema.Parser().parse(request.get("schema").asText());
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            Encoder encoder = EncoderFactory.get().jsonEncoder(schema, out);
            new GenericDatumWriter<Object>(schema).write(value, encoder);
            encoder.flush();
            return JSON.readTree(out.toByteArray());
        }
        if (format.equals("json")) {
            return JSON.valueToTree(value);
        }
        return JSON.valueToTree(base64(((Message) value).toByteArray()));
    }

    /** Return the message's descriptor in a set of files, each after those that it imports. */
    private static Descriptor descriptor(JsonNode request) throws Exception {
        Map<String, FileDescriptor> known = new HashMap<>();
        FileDescriptor last = null;
        for (FileDescriptorProto file : FileDescriptorSet.parseFrom(Base64.getDecoder().decode(request.get("schema").asText())).getFileList()) {
            FileDescriptor[] needed = file.getDependencyList().stream().map(known::get).toArray(FileDescriptor[]::new);
            last = FileDescriptor.buildFrom(file, needed);
            known.put(file.getName(), last);
        }
        return last.findMessageTypeByName(request.get("message").asText());
    }

    private static String base64(byte[] data) {
        return Base64.getEncoder().encodeToString(data);
    }
}
