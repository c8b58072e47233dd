import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.group.generated.GroupMetadataKey;
import org.apache.kafka.coordinator.group.generated.GroupMetadataValue;
import org.apache.kafka.coordinator.group.generated.OffsetCommitKey;
import org.apache.kafka.coordinator.group.generated.OffsetCommitValue;

/** Prints the records of __consumer_offsets as Kafka encodes them, and the partitions of groups. */
class GroupRecords {
    public static void main(String[] args) {
        key("offset key", 1, new OffsetCommitKey().setGroup("billing").setTopic("orders").setPartition(3));
        key("group key", 2, new GroupMetadataKey().setGroup("grüße"));
        for (int version = 0; version <= 4; version++) {
            OffsetCommitValue value = new OffsetCommitValue()
                .setOffset(1234567890123L).setMetadata("mé").setCommitTimestamp(1700000000000L);
            if (version >= 3) value.setLeaderEpoch(7);
            if (version == 1) value.setExpireTimestamp(1700000086400L);
            if (version >= 4) value.setTopicId(new Uuid(0x0123456789abcdefL, 0x1122334455667788L));
            value("offset value " + version, version, value);
            GroupMetadataValue.MemberMetadata member = new GroupMetadataValue.MemberMetadata()
                .setMemberId("m-1").setClientId("c").setClientHost("/10.0.0.1").setSessionTimeout(45000)
                .setSubscription(new byte[] {0, 1, 2}).setAssignment(new byte[] {3});
            if (version >= 1) member.setRebalanceTimeout(300000);
            if (version >= 3) member.setGroupInstanceId("i-1");
            GroupMetadataValue group = new GroupMetadataValue()
                .setProtocolType("consumer").setGeneration(5).setProtocol("range").setLeader("m-1")
                .setMembers(List.of(member));
            if (version >= 2) group.setCurrentStateTimestamp(1700000000001L);
            value("group value " + version, version, group);
            value("empty group value " + version, version,
                new GroupMetadataValue().setProtocolType("consumer").setGeneration(6).setMembers(List.of()));
        }
        for (String group : new String[] {"billing", "polygenelubricants", "grüße", "\uD83D\uDE00 group", "a", ""})
            System.out.println("partition of " + HexFormat.of().formatHex(group.getBytes(java.nio.charset.StandardCharsets.UTF_8))
                + "\t" + Utils.abs(group.hashCode()) % 50 + " " + group.hashCode());
    }

    private static void key(String name, int kind, Message key) {
        byte[] body = MessageUtil.toVersionPrefixedBytes((short) 0, key);
        ByteBuffer encoded = ByteBuffer.wrap(body).putShort(0, (short) kind);
        print(name, encoded);
    }

    private static void value(String name, int version, Message value) {
        print(name, MessageUtil.toVersionPrefixedByteBuffer((short) version, value));
    }

    private static void print(String name, ByteBuffer encoded) {
        byte[] bytes = new byte[encoded.remaining()];
        encoded.get(bytes);
        System.out.println(name + "\t" + HexFormat.of().formatHex(bytes));
    }
}
