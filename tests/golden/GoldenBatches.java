import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.Crc32C;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Prints batches that Apache Kafka's own classes build ("batch NAME HEX"), and what its
 * LogValidator makes of good and bad ones ("verdict NAME RULES HEX ANSWER"). Each verdict's rules
 * are ORIGIN,TIMESTAMP_TYPE,COMPACTED,COMPRESSION; its answer is the bytes to append or the error.
 * `tools/make_golden_batches.py` runs it.
 */
public final class GoldenBatches {
    private static final long T = 1_700_000_000_000L;
    private static final long NOW = T + 60_000;
    private static final int CRC_AT = 17;
    private static final int ATTRIBUTES_AT = 21;
    private static final int RECORDS_AT = 61;
    private static PrintStream out;
    /** Bytes of the last record's value: a varint of three bytes, then of two. */
    private static int longValue = 9000;

    public static void main(String[] args) {
        out = System.out;
        batches();
        longValue = 100;
        headerVerdicts();
        recordVerdicts();
        conversionVerdicts();
    }

    private static Compression codec(String name) {
        return Compression.of(CompressionType.forName(name)).build();
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    private static byte[] take(MemoryRecords records) {
        ByteBuffer buffer = records.buffer().duplicate();
        byte[] result = new byte[buffer.remaining()];
        buffer.get(result);
        return result;
    }

    /** The five records that the tests know; only magic 2 has headers, magic 0 no timestamps. */
    private static byte[] records(int magic, String codec, TimestampType type, long baseOffset,
                                  long producerId, boolean transactional) {
        boolean idempotent = producerId >= 0;
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(1024), (byte) magic,
            codec(codec), type, baseOffset, T + 77, producerId, (short) (idempotent ? 3 : -1),
            idempotent ? 40 : -1, transactional, false, 5, 1024);
        Header[] headers = {
            new RecordHeader("trace", bytes("abc")), new RecordHeader("null", (byte[]) null),
        };
        builder.appendWithOffset(baseOffset, T, bytes("key"), bytes("value"));
        builder.appendWithOffset(baseOffset + 1, T + 900, null, bytes("no key"));
        builder.appendWithOffset(baseOffset + 2, T - 5, bytes("tombstone"), null);
        builder.appendWithOffset(baseOffset + 3, T + 10, bytes(""), bytes(""),
            magic < 2 ? new Header[0] : headers);
        builder.appendWithOffset(baseOffset + 4, T + 20, bytes("k".repeat(70)), bytes("v".repeat(longValue)));
        return take(builder.build());
    }

    private static void print(String name, byte[] batch) {
        out.println("batch " + name + " " + HexFormat.of().formatHex(batch));
    }

    private static void batches() {
        for (int magic = 0; magic <= 2; magic++) {
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
                if (magic == 2 || !codec.equals("zstd")) {
                    TimestampType create = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME;
                    print("magic-" + magic + "-" + codec, records(magic, codec, create, 100, -1, false));
                }
            }
            if (magic > 0) {
                print("magic-" + magic + "-log-append-time",
                    records(magic, "gzip", TimestampType.LOG_APPEND_TIME, 100, -1, false));
            }
        }
        print("transactional", records(2, "lz4", TimestampType.CREATE_TIME, 100, 4711, true));
        for (ControlRecordType type : List.of(ControlRecordType.COMMIT, ControlRecordType.ABORT)) {
            print("marker-" + type.name().toLowerCase(), take(MemoryRecords.withEndTransactionMarker(
                0, T, -1, 4711, (short) 3, new EndTransactionMarker(type, 9))));
        }
    }

    /** Changes a batch and makes its CRC right again. */
    private static byte[] change(byte[] batch, Consumer<ByteBuffer> edit) {
        byte[] changed = batch.clone();
        edit.accept(ByteBuffer.wrap(changed));
        return fix(changed);
    }

    private static byte[] fix(byte[] batch) {
        ByteBuffer buffer = ByteBuffer.wrap(batch);
        buffer.putInt(8, batch.length - 12);
        buffer.putInt(CRC_AT, (int) Crc32C.compute(buffer, ATTRIBUTES_AT, batch.length - ATTRIBUTES_AT));
        return batch;
    }

    private static byte[] plain() {
        return records(2, "none", TimestampType.CREATE_TIME, 0, -1, false);
    }

    /** A batch of one hand-made record after the header, `count` said to be in it. */
    private static byte[] handMade(int count, int... record) {
        byte[] batch = Arrays.copyOf(change(plain(), b -> b.putInt(23, count - 1).putInt(57, count)),
            RECORDS_AT + record.length);
        for (int index = 0; index < record.length; index++) {
            batch[RECORDS_AT + index] = (byte) record[index];
        }
        return fix(batch);
    }

    private static void headerVerdicts() {
        String client = "client,create,delete,producer";
        String coordinator = "coordinator,create,delete,producer";
        String logAppend = "client,append,delete,producer";
        byte[] plain = plain();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            byte[] batch = records(2, codec, TimestampType.CREATE_TIME, 0, 4711, true);
            verdict("good-" + codec, client, batch);
            verdict("stamped-" + codec, logAppend, batch);
            verdict("max-timestamp-" + codec, client, change(batch, b -> b.putLong(35, T - 9)));
            verdict("late-" + codec, client, change(batch, b -> b.putLong(27, T + 4_000_000)));
        }
        verdict("unused-attributes", client, change(plain, b -> b.putShort(21, (short) 0x7f80)));
        verdict("unused-attributes-stamped", logAppend, change(plain, b -> b.putShort(21, (short) 0x7f80)));
        verdict("delete-horizon", client, change(plain, b -> b.putShort(21, (short) 0x40)));
        verdict("says-append-time", client, change(plain, b -> b.putShort(21, (short) 8)));
        verdict("says-append-time-stamped", logAppend, change(plain, b -> b.putShort(21, (short) 8)));
        verdict("says-append-time-late", client,
            change(plain, b -> b.putShort(21, (short) 8).putLong(35, T + 5_000_000)));
        verdict("says-append-time-never", client,
            change(plain, b -> b.putShort(21, (short) 8).putLong(35, -1)));
        verdict("count-too-small", client, change(plain, b -> b.putInt(57, 4)));
        verdict("count-and-delta-too-small", client, change(plain, b -> b.putInt(57, 4).putInt(23, 3)));
        verdict("count-and-delta-too-large", client, change(plain, b -> b.putInt(57, 6).putInt(23, 5)));
        verdict("count-zero", client, change(plain, b -> b.putInt(57, 0).putInt(23, -1)));
        verdict("count-negative", client, change(plain, b -> b.putInt(57, -3).putInt(23, -4)));
        verdict("delta-negative", client, change(plain, b -> b.putInt(23, -1)));
        verdict("count-too-small-coordinator", coordinator, change(plain, b -> b.putInt(57, 4)));
        verdict("no-sequence", client, change(plain, b -> b.putLong(43, 7).putShort(51, (short) 0)));
        verdict("no-sequence-coordinator", coordinator, change(plain, b -> b.putLong(43, 7).putShort(51, (short) 0)));
        verdict("no-producer-id", client, change(plain, b -> b.putInt(53, 7)));
        byte[] marker = take(MemoryRecords.withEndTransactionMarker(0, T, -1, 4711, (short) 3,
            new EndTransactionMarker(ControlRecordType.COMMIT, 9)));
        verdict("control", client, marker);
        verdict("control-coordinator", coordinator, marker);
        verdict("control-coordinator-recompress", "coordinator,create,delete,gzip", marker);
    }

    private static void recordVerdicts() {
        String client = "client,create,delete,producer";
        byte[] plain = plain();
        verdict("compacted", "client,create,compact,producer", plain);
        verdict("compacted-gzip", "client,create,compact,producer",
            records(2, "gzip", TimestampType.CREATE_TIME, 0, -1, false));
        verdict("compacted-late", "client,create,compact,producer",
            change(plain, b -> b.putLong(27, T + 4_000_000)));
        verdict("never", client, change(handMade(1, 12, 0, 0, 0, 1, 1, 0), b -> b.putLong(27, -1)));
        verdict("long-ago", client, change(plain, b -> b.putLong(27, -1_000_000)));
        // Length, attributes, timestamp delta, offset delta, key, value, headers count.
        verdict("least-record", client, handMade(1, 12, 0, 0, 0, 1, 1, 0));
        verdict("record-attributes", client, handMade(1, 12, 0xff, 0, 0, 1, 1, 0));
        verdict("null-is-any-negative", client, handMade(1, 12, 0, 0, 0, 9, 9, 0));
        verdict("length-negative", client, handMade(1, 1, 0, 0, 0, 1, 1, 0));
        verdict("length-beyond", client, handMade(1, 14, 0, 0, 0, 1, 1, 0));
        verdict("length-short", client, handMade(1, 10, 0, 0, 0, 1, 1, 0));
        verdict("length-zero", client, handMade(1, 0));
        verdict("bytes-remain-in-record", client, handMade(1, 14, 0, 0, 0, 1, 1, 0, 0));
        verdict("bytes-remain-in-batch", client, handMade(1, 12, 0, 0, 0, 1, 1, 0, 0));
        verdict("key-beyond", client, handMade(1, 12, 0, 0, 0, 8, 1, 0));
        verdict("headers-negative", client, handMade(1, 12, 0, 0, 0, 1, 1, 1));
        verdict("headers-too-many", client, handMade(1, 12, 0, 0, 0, 1, 1, 2));
        verdict("header", client, handMade(1, 18, 0, 0, 0, 1, 1, 2, 2, 'k', 1));
        verdict("header-key-null", client, handMade(1, 16, 0, 0, 0, 1, 1, 2, 1, 1));
        verdict("header-beyond", client, handMade(1, 18, 0, 0, 0, 1, 1, 2, 2, 'k', 8));
        verdict("varint-endless", client, handMade(1, 24, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0, 1, 1, 0, 0));
        verdict("varint-overlong", client, handMade(1, 18, 0, 0, 0x80, 0x80, 0x80, 0, 1, 1, 0));
        verdict("varint-beyond-32-bits", client, handMade(1, 20, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x70, 1, 1, 0));
        verdict("varlong-endless", client,
            handMade(1, 32, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 1, 1, 0));
        verdict("no-records", client, handMade(1));
    }

    private static void conversionVerdicts() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            byte[] batch = records(2, codec, TimestampType.CREATE_TIME, 0, 4711, true);
            verdict("to-none-" + codec, "client,create,delete,none", batch);
            verdict("to-lz4-" + codec, "client,create,delete,lz4", batch);
            verdict("to-none-stamped-" + codec, "client,append,delete,none", batch);
            verdict("to-zstd-stamped-" + codec, "client,append,delete,zstd", batch);
        }
        // Inner offsets 0, 2 in a compressed batch, which Kafka repairs.
        MemoryRecordsBuilder builder = new MemoryRecordsBuilder(ByteBuffer.allocate(1024), (byte) 2,
            codec("gzip"), TimestampType.CREATE_TIME, 0, -1, -1, (short) -1, -1, false, false, -1, 1024);
        builder.appendWithOffset(0, T, bytes("a"), bytes("b"));
        builder.appendWithOffset(2, T + 1, bytes("c"), bytes("d"));
        byte[] gap = take(builder.build());
        verdict("offsets-with-a-gap", "client,create,delete,producer", change(gap, b -> b.putInt(23, 1)));
        verdict("offsets-with-a-gap-to-none", "client,create,delete,none", change(gap, b -> b.putInt(23, 1)));
    }

    private static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        @Override
        public void recordInvalidMagic() { }

        @Override
        public void recordInvalidOffset() { }

        @Override
        public void recordInvalidSequence() { }

        @Override
        public void recordInvalidChecksums() { }

        @Override
        public void recordNoKeyCompactedTopic() { }
    };

    private static final Time CLOCK = new Time() {
        @Override
        public long milliseconds() {
            return NOW;
        }

        @Override
        public long nanoseconds() {
            return NOW * 1_000_000;
        }

        @Override
        public void sleep(long ms) { }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) { }
    };

    private static void verdict(String name, String rules, byte[] batch) {
        String input = HexFormat.of().formatHex(batch);
        out.println("verdict " + name + " " + rules + " " + input + " " + answer(rules.split(","), batch.clone()));
    }

    private static String answer(String[] rules, byte[] batch) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(batch));
        CompressionType source = records.firstBatch().compressionType();
        LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), CLOCK, source,
            rules[3].equals("producer") ? Compression.of(source).build() : codec(rules[3]),
            rules[2].equals("compact"), (byte) 2,
            rules[1].equals("append") ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME,
            Long.MAX_VALUE, 3_600_000, 0,
            rules[0].equals("client") ? AppendOrigin.CLIENT : AppendOrigin.COORDINATOR);
        try {
            MemoryRecords validated = validator.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(0), NO_METRICS, BufferSupplier.NO_CACHING).validatedRecords();
            return HexFormat.of().formatHex(take(validated));
        } catch (RecordValidationException e) {
            StringBuilder indexes = new StringBuilder(Errors.forException(e.invalidException()).name());
            e.recordErrors().forEach(error -> indexes.append(":").append(error.batchIndex));
            return indexes.toString();
        } catch (ApiException e) {
            return Errors.forException(e).name();
        } catch (RuntimeException e) {
            return "UNKNOWN_SERVER_ERROR";
        }
    }
}
