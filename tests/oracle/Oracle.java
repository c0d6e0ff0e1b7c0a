import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's own classes behind a line protocol, so that a dump or a produced batch costs
 * milliseconds and not the start of a JVM. One JSON object a line on stdin, one answer a line on
 * stdout; `tools.py` is the other end and documents the operations.
 */
public final class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, KafkaProducer<byte[], byte[]>> PRODUCERS = new HashMap<>();
    private static final Map<String, String> TRANSACTIONAL_IDS = new HashMap<>();
    private static final Map<String, Admin> ADMINS = new HashMap<>();
    private static final Duration LED_WITHIN = Duration.ofSeconds(90);
    private static final Duration SETTLED_WITHIN = Duration.ofSeconds(90);
    private static final Captured OUT = new Captured();
    private static final Captured ERR = new Captured();

    /** Where System.out and System.err lead. Scala keeps the stream it met first, so the stream stays. */
    private static final class Captured extends OutputStream {
        private ByteArrayOutputStream target = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int value) {
            target.write(value);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            target.write(bytes, offset, length);
        }

        synchronized String take() {
            String text = target.toString(StandardCharsets.UTF_8);
            target = new ByteArrayOutputStream();
            return text;
        }
    }

    /** What a tool had answered when it asked for the end of the process; null until then. */
    private static ObjectNode ended;

    private static void capture(int status, ObjectNode answer) {
        answer.put("exit", status);
        answer.put("stdout", OUT.take());
        answer.put("stderr", ERR.take());
    }

    /** In place of the end of the process. Tools catch this and exit again; the first one counts. */
    private static void end(int status, String message) {
        if (ended == null) {
            ended = JSON.createObjectNode();
            capture(status, ended);
        }
        throw new IllegalStateException("exit " + status);
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure(Oracle::end);
        Exit.setHaltProcedure(Oracle::end);
        BufferedReader requests =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                handle(JSON.readTree(line), answer);
            } catch (Throwable failure) {
                Throwable cause = failure;
                while (cause.getCause() != null) cause = cause.getCause();
                answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            answers.println(JSON.writeValueAsString(answer));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void handle(JsonNode request, ObjectNode answer) throws Exception {
        switch (request.get("op").asText()) {
            case "run" -> runTool(request, answer);
            case "produce" -> produce(request, answer);
            case "consume" -> consume(request, answer);
            case "create_topic" -> createTopic(request);
            case "alter_config" -> alterConfig(request);
            case "delete_records" -> deleteRecords(request);
            case "list_offset" -> listOffset(request, answer);
            case "describe_producers" -> describeProducers(request, answer);
            default -> throw new IllegalArgumentException("unknown op " + request.get("op"));
        }
    }

    private static void runTool(JsonNode request, ObjectNode answer) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("args").forEach(argument -> arguments.add(argument.asText()));
        OUT.take();
        ERR.take();
        System.setIn(new ByteArrayInputStream(
            request.path("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        ended = null;
        int status = 0;
        try {
            Class.forName(request.get("class").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException failure) {
            if (ended == null) {
                status = 1;
                failure.getCause().printStackTrace();
            }
        }
        if (ended == null) {
            capture(status, answer);
        } else {
            answer.setAll(ended);
        }
    }

    private static Map<String, Object> config(JsonNode request) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", request.get("bootstrap").asText());
        if (request.has("config")) {
            request.get("config").properties()
                .forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        }
        return config;
    }

    private static void produce(JsonNode request, ObjectNode answer) throws Exception {
        String name = request.get("producer").asText();
        KafkaProducer<byte[], byte[]> producer = PRODUCERS.get(name);
        if (producer == null) {
            Map<String, Object> config = config(request);
            producer = new KafkaProducer<>(
                config, new ByteArraySerializer(), new ByteArraySerializer());
            PRODUCERS.put(name, producer);
            if (config.containsKey("transactional.id")) {
                TRANSACTIONAL_IDS.put(name, (String) config.get("transactional.id"));
                producer.initTransactions();
            }
        }
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        boolean ends = false;
        try {
            for (JsonNode step : request.get("steps")) {
                String kind = step.get(0).asText();
                ends = kind.equals("commit") || kind.equals("abort") || ends && !kind.equals("begin");
                switch (kind) {
                    case "begin" -> producer.beginTransaction();
                    case "send" -> sent.add(producer.send(record(step.get(1))));
                    case "flush" -> producer.flush();
                    case "commit" -> producer.commitTransaction();
                    case "abort" -> {
                        producer.flush();
                        producer.abortTransaction();
                    }
                    default -> throw new IllegalArgumentException("unknown step " + step);
                }
            }
            producer.flush();
            if (ends) waitForMarkers(admin(request), TRANSACTIONAL_IDS.get(name));
            ArrayNode offsets = answer.putArray("offsets");
            for (Future<RecordMetadata> future : sent) offsets.add(future.get().offset());
        } finally {
            if (request.path("close").asBoolean(true)) PRODUCERS.remove(name).close();
        }
    }

    /** Kafka answers once it has decided; committed records are visible when all markers are written. */
    private static void waitForMarkers(Admin admin, String id) throws Exception {
        long deadline = System.nanoTime() + SETTLED_WITHIN.toNanos();
        while (true) {
            TransactionState state =
                admin.describeTransactions(List.of(id)).description(id).get().state();
            if (state == TransactionState.COMPLETE_COMMIT
                || state == TransactionState.COMPLETE_ABORT) {
                return;
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("transaction " + id + " is still " + state);
            }
            Thread.sleep(10); // between two polls of the coordinator
        }
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode fields) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode header : fields.path("headers")) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        return new ProducerRecord<>(
            fields.get("topic").asText(),
            fields.hasNonNull("partition") ? fields.get("partition").asInt() : null,
            fields.hasNonNull("timestamp") ? fields.get("timestamp").asLong() : null,
            bytes(fields.get("key")),
            bytes(fields.get("value")),
            headers);
    }

    private static byte[] bytes(JsonNode base64) {
        return base64 == null || base64.isNull() ? null : Base64.getDecoder().decode(base64.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }

    private static void consume(JsonNode request, ObjectNode answer) {
        Map<String, Object> config = config(request);
        config.putIfAbsent("enable.auto.commit", "false");
        // Closing waits for the fetch that is under way, and that one for records to come.
        config.putIfAbsent("fetch.max.wait.ms", "5");
        TopicPartition partition =
            new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        List<TopicPartition> only = List.of(partition);
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(only);
            long end = consumer.endOffsets(only).get(partition);
            if (request.hasNonNull("start")) {
                consumer.seek(partition, request.get("start").asLong());
            } else {
                consumer.seekToBeginning(only);
            }
            long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (consumer.position(partition) < end) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("stuck at " + consumer.position(partition)
                        + " of " + end);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    append(records, record);
                }
            }
            answer.put("position", consumer.position(partition));
        }
    }

    private static void append(ArrayNode records, ConsumerRecord<byte[], byte[]> record) {
        ObjectNode fields = records.addObject();
        fields.put("offset", record.offset());
        fields.put("timestamp", record.timestamp());
        fields.put("timestamp_type", record.timestampType().id);
        Optional<Integer> epoch = record.leaderEpoch();
        fields.put("leader_epoch", epoch.orElse(-1));
        fields.put("key", text(record.key()));
        fields.put("value", text(record.value()));
        ArrayNode headers = fields.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
    }

    private static Admin admin(JsonNode request) {
        return ADMINS.computeIfAbsent(
            request.get("bootstrap").asText(), server -> Admin.create(config(request)));
    }

    /**
     * Returns when the broker leads each partition: a producer whose first batch comes too early
     * sends it once more behind its second one, which Kafka took since it knew nothing of the
     * producer, and then refuses the first for its sequence number until it is too old.
     */
    private static void createTopic(JsonNode request) throws Exception {
        Map<String, String> configs = new HashMap<>();
        request.path("topic_config").properties()
            .forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        String name = request.get("topic").asText();
        int partitions = request.get("partitions").asInt();
        NewTopic topic = new NewTopic(name, partitions, (short) 1);
        admin(request).createTopics(List.of(topic.configs(configs))).all().get();
        waitUntilLed(admin(request), name, partitions);
    }

    /**
     * Returns when a topic that was just made can be written to, as `topics.py` does for tests
     * without a JVM. Kafka answers before its broker knows the topic, and its admin client gives up
     * at the first such answer.
     */
    private static void waitUntilLed(Admin admin, String topic, int partitions) throws Exception {
        Map<TopicPartition, OffsetSpec> latest = new HashMap<>();
        for (int partition = 0; partition < partitions; partition++) {
            latest.put(new TopicPartition(topic, partition), OffsetSpec.latest());
        }
        long deadline = System.nanoTime() + LED_WITHIN.toNanos();
        while (true) {
            try {
                admin.listOffsets(latest).all().get();
                return;
            } catch (ExecutionException failure) {
                if (!(failure.getCause() instanceof RetriableException)
                    || System.nanoTime() > deadline) {
                    throw failure;
                }
                Thread.sleep(50); // between two polls of the leader
            }
        }
    }

    private static void alterConfig(JsonNode request) throws Exception {
        ConfigResource topic =
            new ConfigResource(ConfigResource.Type.TOPIC, request.get("topic").asText());
        List<AlterConfigOp> changes = new ArrayList<>();
        request.get("topic_config").properties().forEach(entry -> changes.add(new AlterConfigOp(
            new ConfigEntry(entry.getKey(), entry.getValue().asText()), AlterConfigOp.OpType.SET)));
        admin(request).incrementalAlterConfigs(Map.of(topic, changes)).all().get();
    }

    private static void deleteRecords(JsonNode request) throws Exception {
        TopicPartition partition =
            new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        RecordsToDelete before = RecordsToDelete.beforeOffset(request.get("before").asLong());
        admin(request).deleteRecords(Map.of(partition, before)).all().get();
    }

    private static void listOffset(JsonNode request, ObjectNode answer) throws Exception {
        TopicPartition partition =
            new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        long timestamp = request.get("timestamp").asLong();
        OffsetSpec spec = timestamp == -1 ? OffsetSpec.latest()
            : timestamp == -2 ? OffsetSpec.earliest()
            : timestamp == -3 ? OffsetSpec.maxTimestamp()
            : OffsetSpec.forTimestamp(timestamp);
        ListOffsetsResultInfo found =
            admin(request).listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
        answer.put("timestamp", found.timestamp());
        answer.put("offset", found.offset());
        answer.put("leader_epoch", found.leaderEpoch().orElse(-1));
    }

    private static void describeProducers(JsonNode request, ObjectNode answer) throws Exception {
        TopicPartition partition =
            new TopicPartition(request.get("topic").asText(), request.get("partition").asInt());
        ArrayNode producers = answer.putArray("producers");
        for (ProducerState state : admin(request).describeProducers(List.of(partition))
                .partitionResult(partition).get().activeProducers()) {
            ObjectNode fields = producers.addObject();
            fields.put("producer_id", state.producerId());
            fields.put("producer_epoch", state.producerEpoch());
            fields.put("last_sequence", state.lastSequence());
            fields.put("last_timestamp", state.lastTimestamp());
            fields.put("coordinator_epoch", state.coordinatorEpoch().orElse(-1));
            fields.put("transaction_first_offset",
                state.currentTransactionStartOffset().orElse(-1));
        }
    }
}
