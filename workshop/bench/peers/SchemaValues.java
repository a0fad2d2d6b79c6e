import com.fasterxml.jackson.databind.ObjectMapper;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.DescriptorValidationException;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Values with a schema id in front: Avro as GenericRecord, Protobuf as DynamicMessage of the first message of its file.
 *
 * <p>The schema of an id is asked of the registry, once per thread. A value is written with the schema that it was read with.
 */
final class SchemaValues implements Serde<Object>, Deserializer<Object>, Serializer<Object> {
    private static final ThreadLocal<Forms> FORMS = ThreadLocal.withInitial(Forms::new);

    private final boolean avro;
    private final String registry;

    /** What one thread knows; decoders and encoders are used again. */
    private static final class Forms {
        private final Map<Integer, Form> byId = new HashMap<>();
        private final Map<Object, Form> bySchema = new IdentityHashMap<>();
        private final ByteArrayOutputStream out = new ByteArrayOutputStream(1024);
        private BinaryDecoder decoder;
        private BinaryEncoder encoder;
    }

    /** One schema: of Avro, or the descriptor of a message. */
    private static final class Form {
        private final byte[] prefix;
        private GenericDatumReader<GenericRecord> reader;
        private GenericDatumWriter<GenericRecord> writer;
        private Descriptor message;
        private final Map<String, FieldDescriptor> fields = new HashMap<>();

        private Form(byte[] prefix) {
            this.prefix = prefix;
        }
    }

    SchemaValues(String format, String registry) {
        this.avro = format.equals("avro");
        this.registry = registry;
    }

    // ---- values

    /** Return a field of a value. */
    static Object field(Object value, String name) {
        if (value instanceof GenericRecord record) {
            return record.get(name);
        }
        DynamicMessage message = (DynamicMessage) value;
        return message.getField(FORMS.get().bySchema.get(message.getDescriptorForType()).fields.get(name));
    }

    /** Return the names of a value's fields, in the order of its schema. */
    static List<String> names(Object value) {
        List<String> names = new ArrayList<>();
        if (value instanceof GenericRecord record) {
            record.getSchema().getFields().forEach(field -> names.add(field.name()));
        } else {
            ((DynamicMessage) value).getDescriptorForType().getFields().forEach(field -> names.add(field.getName()));
        }
        return names;
    }

    /** Return a copy of a value with another field. */
    static Object with(Object value, String name, Object field) {
        if (value instanceof GenericData.Record record) {
            GenericData.Record copy = new GenericData.Record(record, false);
            copy.put(name, field);
            return copy;
        }
        DynamicMessage message = (DynamicMessage) value;
        return message.toBuilder().setField(FORMS.get().bySchema.get(message.getDescriptorForType()).fields.get(name), field).build();
    }

    // ---- the serde

    @Override
    public Object deserialize(String topic, byte[] data) {
        if (data == null) {
            return null;
        }
        try {
            Forms forms = FORMS.get();
            Form form = forms.byId.get(ByteBuffer.wrap(data).getInt(1));
            if (form == null) {
                form = asked(forms, data);
            }
            int start = form.prefix.length;
            if (avro) {
                forms.decoder = DecoderFactory.get().binaryDecoder(data, start, data.length - start, forms.decoder);
                return form.reader.read(null, forms.decoder);
            }
            return DynamicMessage.newBuilder(form.message).mergeFrom(data, start, data.length - start).build();
        } catch (IOException broken) {
            throw new UncheckedIOException(broken);
        }
    }

    @Override
    public byte[] serialize(String topic, Object value) {
        if (value == null) {
            return null;
        }
        Forms forms = FORMS.get();
        if (value instanceof GenericRecord record) {
            Form form = forms.bySchema.get(record.getSchema());
            forms.out.reset();
            forms.out.writeBytes(form.prefix);
            forms.encoder = EncoderFactory.get().directBinaryEncoder(forms.out, forms.encoder);
            try {
                form.writer.write(record, forms.encoder);
            } catch (IOException broken) {
                throw new UncheckedIOException(broken);
            }
            return forms.out.toByteArray();
        }
        DynamicMessage message = (DynamicMessage) value;
        byte[] prefix = forms.bySchema.get(message.getDescriptorForType()).prefix;
        byte[] body = message.toByteArray();
        return ByteBuffer.allocate(prefix.length + body.length).put(prefix).put(body).array();
    }

    /** Ask the registry for the schema of a value; a Protobuf schema is a compiled file there. */
    private Form asked(Forms forms, byte[] data) throws IOException {
        ByteBuffer id = ByteBuffer.wrap(data, 0, 5);
        String schema;
        try (var answer = URI.create(registry + "/schemas/ids/" + id.getInt(1)).toURL().openStream()) {
            schema = new ObjectMapper().readTree(answer).get("schema").asText();
        }
        byte[] prefix = new byte[avro ? 5 : 6]; // the message's index in its file is one byte 0
        id.get(prefix, 0, 5);
        Form form = new Form(prefix);
        if (avro) {
            Schema parsed = new Schema.Parser().parse(schema);
            form.reader = new GenericDatumReader<>(parsed);
            form.writer = new GenericDatumWriter<>(parsed);
            forms.bySchema.put(parsed, form);
        } else {
            try {
                FileDescriptorProto file = FileDescriptorProto.parseFrom(Base64.getDecoder().decode(schema));
                form.message = FileDescriptor.buildFrom(file, new FileDescriptor[0]).getMessageTypes().get(0);
            } catch (DescriptorValidationException broken) {
                throw new IOException(broken);
            }
            form.message.getFields().forEach(field -> form.fields.put(field.getName(), field));
            forms.bySchema.put(form.message, form);
        }
        forms.byId.put(id.getInt(1), form);
        return form;
    }

    @Override
    public Serializer<Object> serializer() {
        return this;
    }

    @Override
    public Deserializer<Object> deserializer() {
        return this;
    }

    @Override
    public void configure(Map<String, ?> settings, boolean isKey) {
        // everything is given to the constructor
    }

    @Override
    public void close() {
        // it holds nothing
    }
}
