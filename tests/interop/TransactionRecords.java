import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogKey;
import org.apache.kafka.coordinator.transaction.generated.TransactionLogValue;

/** Prints the records of __transaction_state as Kafka encodes them. */
class TransactionRecords {
    public static void main(String[] args) {
        print("key", MessageUtil.toVersionPrefixedByteBuffer((short) 0, new TransactionLogKey().setTransactionalId("grüße")));
        for (short version = 0; version <= 1; version++) {
            TransactionLogValue value = new TransactionLogValue()
                .setProducerId(1234567890123L).setProducerEpoch((short) 7).setTransactionTimeoutMs(60000)
                .setTransactionStatus((byte) 2).setTransactionLastUpdateTimestampMs(1700000000001L)
                .setTransactionStartTimestampMs(1700000000000L)
                .setTransactionPartitions(List.of(
                    new TransactionLogValue.PartitionsSchema().setTopic("a").setPartitionIds(List.of(0, 3)),
                    new TransactionLogValue.PartitionsSchema().setTopic("bé").setPartitionIds(List.of(1))));
            print("value " + version, MessageUtil.toVersionPrefixedByteBuffer(version, value));
            if (version == 1)
                print("tagged value " + version, MessageUtil.toVersionPrefixedByteBuffer(version, value
                    .setPreviousProducerId(5).setNextProducerId(6).setClientTransactionVersion((short) 2)));
            print("empty value " + version, MessageUtil.toVersionPrefixedByteBuffer(version, new TransactionLogValue()
                .setProducerId(9).setProducerEpoch((short) 0).setTransactionTimeoutMs(1)
                .setTransactionPartitions(null).setTransactionStartTimestampMs(-1)));
        }
    }

    private static void print(String name, ByteBuffer encoded) {
        byte[] bytes = new byte[encoded.remaining()];
        encoded.get(bytes);
        System.out.println(name + "\t" + HexFormat.of().formatHex(bytes));
    }
}
