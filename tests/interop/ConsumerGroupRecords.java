import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.*;

/** Prints the records of __consumer_offsets about groups of the newer protocol, as Kafka encodes them. */
class ConsumerGroupRecords {
    static final Uuid ORDERS = new Uuid(0x0123456789abcdefL, 0x1122334455667788L);

    public static void main(String[] args) {
        key("group key", CoordinatorRecordType.CONSUMER_GROUP_METADATA,
            new ConsumerGroupMetadataKey().setGroupId("grüße"));
        key("topics key", CoordinatorRecordType.CONSUMER_GROUP_PARTITION_METADATA,
            new ConsumerGroupPartitionMetadataKey().setGroupId("grüße"));
        key("member key", CoordinatorRecordType.CONSUMER_GROUP_MEMBER_METADATA,
            new ConsumerGroupMemberMetadataKey().setGroupId("g").setMemberId("m-1"));
        key("target key", CoordinatorRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
            new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("g"));
        key("target of member key", CoordinatorRecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            new ConsumerGroupTargetAssignmentMemberKey().setGroupId("g").setMemberId("m-1"));
        key("current of member key", CoordinatorRecordType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("g").setMemberId("m-1"));
        key("pattern key", CoordinatorRecordType.CONSUMER_GROUP_REGULAR_EXPRESSION,
            new ConsumerGroupRegularExpressionKey().setGroupId("g").setRegularExpression("o.*"));

        value("group value", new ConsumerGroupMetadataValue().setEpoch(7).setMetadataHash(1234567890123L));
        value("group value without hash", new ConsumerGroupMetadataValue().setEpoch(7));
        ConsumerGroupMemberMetadataValue member = new ConsumerGroupMemberMetadataValue()
            .setInstanceId("i-1").setRackId("r").setClientId("c").setClientHost("/10.0.0.1")
            .setSubscribedTopicNames(List.of("bills", "orders")).setSubscribedTopicRegex("o.*")
            .setRebalanceTimeoutMs(300000).setServerAssignor("uniform").setClassicMemberMetadata(null);
        value("member value", member);
        value("classic member value", member.duplicate().setClassicMemberMetadata(
            new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(45000)
                .setSupportedProtocols(List.of(new ConsumerGroupMemberMetadataValue.ClassicProtocol()
                    .setName("range").setMetadata(new byte[] {0, 1, 2})))));
        value("bare member value", new ConsumerGroupMemberMetadataValue()
            .setInstanceId(null).setRackId(null).setSubscribedTopicRegex(null).setServerAssignor(null)
            .setClassicMemberMetadata(null));
        value("target value",
            new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(7).setAssignmentTimestamp(1700000000000L));
        value("target of member value", new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
            new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(ORDERS).setPartitions(List.of(0, 2)))));
        value("current of member value", new ConsumerGroupCurrentMemberAssignmentValue()
            .setMemberEpoch(7).setPreviousMemberEpoch(6).setState((byte) 1)
            .setAssignedPartitions(List.of(partitions().setPartitions(List.of(0, 2)).setAssignmentEpochs(List.of(5, 7))))
            .setPartitionsPendingRevocation(List.of(partitions().setPartitions(List.of(1)).setAssignmentEpochs(null))));
        value("pattern value", new ConsumerGroupRegularExpressionValue()
            .setTopics(List.of("orders")).setVersion(11).setTimestamp(1700000000000L));
    }

    private static ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions partitions() {
        return new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(ORDERS);
    }

    private static void key(String name, CoordinatorRecordType kind, Message key) {
        byte[] body = MessageUtil.toVersionPrefixedBytes((short) 0, key);
        print(name, ByteBuffer.wrap(body).putShort(0, kind.id()));
    }

    private static void value(String name, Message value) {
        print(name, MessageUtil.toVersionPrefixedByteBuffer((short) 0, value));
    }

    private static void print(String name, ByteBuffer encoded) {
        byte[] bytes = new byte[encoded.remaining()];
        encoded.get(bytes);
        System.out.println(name + "\t" + HexFormat.of().formatHex(bytes));
    }
}
