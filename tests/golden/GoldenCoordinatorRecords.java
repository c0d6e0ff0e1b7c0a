import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * Prints a record of every kind and version of `__consumer_offsets`, every field of which is set,
 * as Apache Kafka's own classes write it: kind, version, key and value in hexadecimal, and both as
 * JSON, with tabs between. `tools/make_golden_records.py` runs it.
 */
public final class GoldenCoordinatorRecords {
    private static int number = 1;

    public static void main(String[] args) throws Exception {
        PrintStream out = System.out;
        CoordinatorRecordType[] kinds = CoordinatorRecordType.values();
        Arrays.sort(kinds, Comparator.comparingInt(CoordinatorRecordType::id));
        for (CoordinatorRecordType kind : kinds) {
            for (short v = kind.lowestSupportedVersion(); v <= kind.highestSupportedVersion(); v++) {
                number = 1;
                ApiMessage key = (ApiMessage) filled(kind.newRecordKey());
                ApiMessage value = (ApiMessage) filled(kind.newRecordValue());
                JsonNode keyJson = CoordinatorRecordJsonConverters.writeRecordKeyAsJson(key);
                JsonNode valueJson =
                        CoordinatorRecordJsonConverters.writeRecordValueAsJson(value, v);
                out.printf(
                        "%d\t%d\t%s\t%s\t%s\t%s%n",
                        kind.id(),
                        v,
                        hex(MessageUtil.toCoordinatorTypePrefixedBytes(key)),
                        hex(MessageUtil.toVersionPrefixedBytes(v, value)),
                        keyJson,
                        valueJson);
            }
        }
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }

    /** The message with a value of its own in every field. */
    private static Object filled(Object message) throws Exception {
        Method[] methods = message.getClass().getMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method method : methods) {
            if (method.getName().startsWith("set") && method.getParameterCount() == 1) {
                method.invoke(message, value(method.getGenericParameterTypes()[0]));
            }
        }
        return message;
    }

    private static Object value(Type type) throws Exception {
        int next = number++;
        if (type == String.class) {
            return "text-ä-" + next;
        } else if (type == int.class || type == Integer.class) {
            return next;
        } else if (type == long.class || type == Long.class) {
            return (long) next << 32;
        } else if (type == short.class || type == Short.class) {
            return (short) next;
        } else if (type == byte.class || type == Byte.class) {
            return (byte) next;
        } else if (type == boolean.class) {
            return true;
        } else if (type == Uuid.class) {
            return new Uuid(next, next);
        } else if (type == byte[].class) {
            return new byte[] {(byte) next, 0};
        } else if (type == ByteBuffer.class) {
            return ByteBuffer.wrap(new byte[] {(byte) next, 0});
        } else if (type instanceof ParameterizedType list) {
            List<Object> values = new ArrayList<>();
            values.add(value(list.getActualTypeArguments()[0]));
            values.add(value(list.getActualTypeArguments()[0]));
            return values;
        }
        return filled(((Class<?>) type).getConstructor().newInstance());
    }
}
