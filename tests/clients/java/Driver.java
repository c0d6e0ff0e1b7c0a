import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's Java client behind a line protocol: one JSON object a line over the connection to
 * 127.0.0.1:port, whose answer carries its id. drivers.py is the other end and documents the
 * operations. It is a guest in the JVM of Kafka's tools.
 */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, ConsumerGroupMetadata> GROUPS = new ConcurrentHashMap<>();

    private interface Handler {
        void handle(JsonNode request, ObjectNode answer) throws Exception;
    }

    /**
     * Returns once connected; the connection is served by threads that die with the JVM. A program
     * of its own, which is what a second argument asks for, ends with the connection.
     */
    public static void main(String[] arguments) throws IOException {
        Socket connection = new Socket("127.0.0.1", Integer.parseInt(arguments[0]));
        Thread reader = new Thread(() -> serve(connection), "driver");
        reader.setDaemon(arguments.length == 1);
        reader.start();
    }

    private static void serve(Socket connection) {
        ExecutorService pool = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        Map<String, Handler> handlers = new ConcurrentHashMap<>();
        try (connection;
                BufferedReader requests = new BufferedReader(
                    new InputStreamReader(connection.getInputStream(), StandardCharsets.UTF_8))) {
            OutputStream answers = connection.getOutputStream();
            for (String line = requests.readLine(); line != null; line = requests.readLine()) {
                JsonNode request = JSON.readTree(line);
                pool.execute(() -> answer(request, handlers, answers));
            }
        } catch (IOException end) {
            // The tests are over.
        }
    }

    private static void answer(
            JsonNode request, Map<String, Handler> handlers, OutputStream answers) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            String name = request.get("name").asText();
            switch (request.get("op").asText()) {
                case "producer" -> handlers.put(name, producer(request));
                case "consumer" -> handlers.put(name, consumer(request));
                default -> handlers.get(name).handle(request, answer);
            }
        } catch (Throwable failure) {
            answer.put("error", failure.toString());
        }
        answer.set("id", request.get("id"));
        try {
            byte[] line = (JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8);
            synchronized (answers) {
                answers.write(line);
            }
        } catch (IOException end) {
            // The tests are over.
        }
    }

    private static Handler producer(JsonNode request) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", request.get("servers").asText(),
            "acks", "all",
            "compression.type", request.get("codec").asText(),
            "enable.idempotence", request.get("idempotent").asBoolean(),
            "max.request.size", request.get("request_bytes_max").asInt(),
            "linger.ms", 5,
            "reconnect.backoff.max.ms", 500));
        boolean transactional = request.hasNonNull("transactional_id");
        if (transactional) {
            int timeout = request.get("transaction_timeout_ms").asInt();
            config.put("enable.idempotence", true);
            config.put("transactional.id", request.get("transactional_id").asText());
            config.put("transaction.timeout.ms", timeout);
        }
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        if (transactional) producer.initTransactions();
        return (call, answer) -> {
            switch (call.get("op").asText()) {
                case "send" -> {
                    List<Future<RecordMetadata>> sent = new ArrayList<>();
                    for (JsonNode each : call.get("records")) {
                        sent.add(producer.send(record(each)));
                    }
                    for (Future<RecordMetadata> future : sent) future.get();
                }
                case "begin" -> producer.beginTransaction();
                case "offsets" -> producer.sendOffsetsToTransaction(
                    offsets(call.get("offsets")), GROUPS.get(call.get("group").asText()));
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "close" -> producer.close();
                default -> throw new IllegalArgumentException("no " + call.get("op"));
            }
        };
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode fields) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : fields.get("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return new ProducerRecord<>(
            fields.get("topic").asText(),
            fields.hasNonNull("partition") ? fields.get("partition").asInt() : null,
            fields.hasNonNull("timestamp") ? fields.get("timestamp").asLong() : null,
            bytes(fields.get("key")), bytes(fields.get("value")), headers);
    }

    private static Handler consumer(JsonNode request) {
        Map<String, Object> config = new HashMap<>(Map.of(
            "bootstrap.servers", request.get("servers").asText(),
            "enable.auto.commit", request.get("auto_commit").asBoolean(),
            "auto.commit.interval.ms", request.get("auto_commit_ms").asInt(),
            "auto.offset.reset", "earliest",
            "heartbeat.interval.ms", request.get("heartbeat_ms").asInt(),
            "session.timeout.ms", request.get("session_ms").asInt(),
            "fetch.max.wait.ms", 100,
            "max.poll.records", 10_000,
            "isolation.level",
            request.get("committed_only").asBoolean() ? "read_committed" : "read_uncommitted",
            "reconnect.backoff.max.ms", 500));
        if (request.hasNonNull("group")) config.put("group.id", request.get("group").asText());
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
            config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Map<TopicPartition, OffsetAndMetadata> assigned = offsets(request.get("assign"));
        if (!assigned.isEmpty()) {
            consumer.assign(assigned.keySet());
            assigned.forEach(consumer::seek);
        } else if (!request.get("pattern").asText().isEmpty()) {
            consumer.subscribe(Pattern.compile(request.get("pattern").asText()));
        } else {
            List<String> topics = new ArrayList<>();
            request.get("topics").forEach(topic -> topics.add(topic.asText()));
            consumer.subscribe(topics);
        }
        return (call, answer) -> {
            // The consumer refuses two threads at once; calls come one after the other.
            switch (call.get("op").asText()) {
                case "poll" -> {
                    ArrayNode records = answer.putArray("records");
                    Duration timeout = Duration.ofMillis(call.get("timeout_ms").asLong());
                    consumer.poll(timeout).forEach(record -> append(records, record));
                }
                case "assignment" -> {
                    ArrayNode partitions = answer.putArray("partitions");
                    consumer.assignment().forEach(
                        each -> partitions.addArray().add(each.topic()).add(each.partition()));
                }
                case "seek" -> consumer.seek(
                    new TopicPartition(call.get("topic").asText(), call.get("partition").asInt()),
                    call.get("offset").asLong());
                case "commit" -> {
                    if (call.get("wait").asBoolean()) {
                        consumer.commitSync(offsets(call.get("offsets")));
                    } else {
                        consumer.commitAsync(offsets(call.get("offsets")), null);
                    }
                }
                case "group" -> {
                    String token = "group " + GROUPS.size();
                    GROUPS.put(token, consumer.groupMetadata());
                    answer.put("group", token);
                }
                case "close" -> consumer.close();
                default -> throw new IllegalArgumentException("no " + call.get("op"));
            }
        };
    }

    private static void append(ArrayNode records, ConsumerRecord<byte[], byte[]> record) {
        ObjectNode fields = records.addObject();
        fields.put("topic", record.topic());
        fields.put("partition", record.partition());
        fields.put("offset", record.offset());
        fields.put("timestamp", record.timestamp());
        fields.put("key", text(record.key()));
        fields.put("value", text(record.value()));
        ArrayNode headers = fields.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode places) {
        Map<TopicPartition, OffsetAndMetadata> found = new HashMap<>();
        for (JsonNode each : places) {
            found.put(
                new TopicPartition(each.get(0).asText(), each.get(1).asInt()),
                new OffsetAndMetadata(each.get(2).asLong()));
        }
        return found;
    }

    private static byte[] bytes(JsonNode base64) {
        return base64.isNull() ? null : Base64.getDecoder().decode(base64.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
