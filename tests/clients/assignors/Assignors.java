import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Does with Kafka's own classes what tests.clients.assignors.java asks for: encodes metadata, and assigns.
 * Reads one JSON document, and answers with one.
 */
public class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode asked = JSON.readTree(System.in);
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode encoded = answer.putArray("encoded");
        for (JsonNode each : asked.get("encode")) encode(each, encoded.addObject());
        ArrayNode assigned = answer.putArray("assigned");
        for (JsonNode each : asked.get("assign")) {
            ObjectNode members = assigned.addObject();
            try {
                assign(each, members);
            } catch (NullPointerException error) {
                members.removeAll().put("error", error.toString());
            }
        }
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static void encode(JsonNode asked, ObjectNode answer) {
        List<String> topics = new ArrayList<>();
        for (JsonNode topic : asked.get("topics")) topics.add(topic.asText());
        List<TopicPartition> owned = new ArrayList<>();
        for (JsonNode each : asked.get("owned")) owned.add(new TopicPartition(each.get(0).asText(), each.get(1).asInt()));
        int generation = asked.get("generation").asInt();
        ByteBuffer userData = bytes(asked.get("user_data"));
        Optional<String> rack = Optional.ofNullable(asked.get("rack").textValue());
        Subscription subscription = new Subscription(topics, userData, owned, generation, rack);
        for (short version = 0; version <= 3; version++) {
            answer.put("subscription" + version, text(ConsumerProtocol.serializeSubscription(subscription, version)));
            answer.put("assignment" + version, text(ConsumerProtocol.serializeAssignment(new Assignment(owned, userData), version)));
        }
        for (ConsumerPartitionAssignor assignor : List.of(new StickyAssignor(), new CooperativeStickyAssignor())) {
            ObjectNode data = answer.putObject(assignor.name());
            data.put("before", text(assignor.subscriptionUserData(Set.of())));
            assignor.onAssignment(new Assignment(owned), new ConsumerGroupMetadata("g", generation, "m", Optional.empty()));
            data.put("after", text(assignor.subscriptionUserData(Set.of())));
        }
    }

    private static void assign(JsonNode asked, ObjectNode answer) {
        List<PartitionInfo> partitions = new ArrayList<>();
        asked.get("counts").fields().forEachRemaining(topic -> {
            for (int number = 0; number < topic.getValue().asInt(); number++)
                partitions.add(new PartitionInfo(topic.getKey(), number, Node.noNode(), new Node[0], new Node[0]));
        });
        Cluster cluster = new Cluster("cluster", List.of(), partitions, Set.of(), Set.of());
        Map<String, Subscription> members = new HashMap<>();
        asked.get("members").fields().forEachRemaining(member -> {
            Subscription sent = ConsumerProtocol.deserializeSubscription(bytes(member.getValue().get("metadata")));
            sent.setGroupInstanceId(Optional.ofNullable(member.getValue().get("instance_id").textValue()));
            members.put(member.getKey(), sent);
        });
        ConsumerPartitionAssignor assignor = assignor(asked.get("assignor").asText());
        for (int round = 1; ; round++) {
            Map<String, Assignment> assigned = assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
            if (round == asked.get("rounds").asInt()) {
                assigned.forEach((member, each) -> answer.put(member, text(ConsumerProtocol.serializeAssignment(each))));
                return;
            }
            int generation = 1000 + round;  // members take what they get, give up all else, and join again
            members.replaceAll((member, sent) ->
                new Subscription(sent.topics(), null, assigned.get(member).partitions(), generation, Optional.empty()));
        }
    }

    private static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            case "cooperative-sticky" -> new CooperativeStickyAssignor();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static ByteBuffer bytes(JsonNode text) {
        return text.isNull() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(text.asText()));
    }

    private static String text(ByteBuffer buffer) {
        if (buffer == null) return null;
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }
}
