import com.fasterxml.jackson.databind.JsonNode;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.transaction.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

/**
 * Prints records of `__transaction_state` in every state, as Apache Kafka's own classes write them:
 * version, key and value in hexadecimal, and the value as JSON, with tabs between.
 * `tools/make_golden_records.py` runs it.
 */
public final class GoldenTransactionRecords {
    public static void main(String[] args) {
        for (short version = 0; version <= 1; version++) {
            for (byte state = 0; state <= 5; state++) {
                print(version, value(version, state));
            }
        }
        print((short) 1, value((short) 1, (byte) 2).setNextProducerId(5000).setProducerEpoch(Short.MAX_VALUE));
    }

    private static TransactionLogValue value(short version, byte state) {
        TransactionLogValue value =
                new TransactionLogValue()
                        .setProducerId(4001)
                        .setProducerEpoch((short) 7)
                        .setTransactionTimeoutMs(60000)
                        .setTransactionStatus(state)
                        .setTransactionLastUpdateTimestampMs(1001)
                        .setTransactionStartTimestampMs(state == 0 ? -1 : 1000)
                        .setTransactionPartitions(
                                state == 0
                                        ? null
                                        : state > 3
                                                ? List.of()
                                                : List.of(partitions("a", 1), partitions("orders", 0, 2)));
        return version == 0
                ? value
                : value.setPreviousProducerId(4001).setClientTransactionVersion((short) 2);
    }

    private static TransactionLogValue.PartitionsSchema partitions(String topic, Integer... ids) {
        return new TransactionLogValue.PartitionsSchema()
                .setTopic(topic)
                .setPartitionIds(List.of(ids));
    }

    private static void print(short version, TransactionLogValue value) {
        TransactionLogKey key = new TransactionLogKey().setTransactionalId("ä-1");
        JsonNode json =
                CoordinatorRecordJsonConverters.writeRecordValueAsJson(value, version);
        HexFormat hex = HexFormat.of();
        System.out.printf(
                "%d\t%s\t%s\t%s%n",
                version,
                hex.formatHex(MessageUtil.toCoordinatorTypePrefixedBytes(key)),
                hex.formatHex(MessageUtil.toVersionPrefixedBytes(version, value)),
                json);
    }
}
