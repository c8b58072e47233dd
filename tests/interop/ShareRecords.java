import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.generated.ShareSnapshotKey;
import org.apache.kafka.coordinator.share.generated.ShareSnapshotValue;
import org.apache.kafka.coordinator.share.generated.ShareUpdateKey;
import org.apache.kafka.coordinator.share.generated.ShareUpdateValue;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.share.SharePartitionKey;

/** Prints the records of __share_group_state as Kafka encodes them, and the partition that has a key's. */
class ShareRecords {
    static final Uuid TOPIC = new Uuid(0x0123456789abcdefL, 0x1122334455667788L);

    public static void main(String[] args) {
        ShareSnapshotKey snapshotKey = new ShareSnapshotKey().setGroupId("grüße").setTopicId(TOPIC).setPartition(3);
        ShareUpdateKey updateKey = new ShareUpdateKey().setGroupId("grüße").setTopicId(TOPIC).setPartition(3);
        ShareSnapshotValue snapshot = new ShareSnapshotValue()
            .setSnapshotEpoch(70000).setStateEpoch(2).setLeaderEpoch(5).setStartOffset(1234567890123L)
            .setCreateTimestamp(1700000000000L).setWriteTimestamp(1700000000001L)
            .setStateBatches(List.of(
                new ShareSnapshotValue.StateBatch().setFirstOffset(1234567890123L).setLastOffset(1234567890130L)
                    .setDeliveryState((byte) 0).setDeliveryCount((short) 1),
                new ShareSnapshotValue.StateBatch().setFirstOffset(1234567890131L).setLastOffset(1234567890131L)
                    .setDeliveryState((byte) 4).setDeliveryCount((short) 5)));
        ShareUpdateValue update = new ShareUpdateValue()
            .setSnapshotEpoch(70000).setLeaderEpoch(-1).setStartOffset(-1)
            .setStateBatches(List.of(
                new ShareUpdateValue.StateBatch().setFirstOffset(7).setLastOffset(9)
                    .setDeliveryState((byte) 2).setDeliveryCount((short) 1)));
        print("snapshot", CoordinatorRecord.record(snapshotKey, new ApiMessageAndVersion(snapshot, (short) 0)));
        print("update", CoordinatorRecord.record(updateKey, new ApiMessageAndVersion(update, (short) 0)));
        snapshot.setDeliveryCompleteCount(1);
        update.setDeliveryCompleteCount(3);
        print("counted snapshot", CoordinatorRecord.record(snapshotKey, new ApiMessageAndVersion(snapshot, (short) 0)));
        print("counted update", CoordinatorRecord.record(updateKey, new ApiMessageAndVersion(update, (short) 0)));
        ByteBuffer time = ByteBuffer.allocate(8).putLong(0, 1700000000123L);
        update.stateBatches().get(0).setDeliveryState((byte) 0).unknownTaggedFields()
            .add(new RawTaggedField(10000, time.array()));
        print("delayed update", CoordinatorRecord.record(updateKey, new ApiMessageAndVersion(update, (short) 0)));
        print("tombstone", CoordinatorRecord.tombstone(snapshotKey));
        for (String group : List.of("", "orders", "grüße", "𐀀:-_"))
            for (int partition : new int[] {0, 7, 2147483647})
                System.out.println("partition of 50\t" + group + "\t" + partition + "\t"
                    + Utils.abs(SharePartitionKey.asCoordinatorKey(group, TOPIC, partition).hashCode()) % 50);
    }

    private static void print(String name, CoordinatorRecord record) {
        ShareCoordinatorRecordSerde serde = new ShareCoordinatorRecordSerde();
        byte[] value = serde.serializeValue(record);
        System.out.println(name + "\t" + HexFormat.of().formatHex(serde.serializeKey(record)) + "\t"
            + (value == null ? "" : HexFormat.of().formatHex(value)));
    }
}
