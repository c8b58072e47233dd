import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Does with the classes of Kafka's coordinator what tests.broker.consumer_groups.test_java asks for: assigns,
 * and matches names. Reads one JSON document, and answers with one. Topics are numbers.
 */
class ServerSide {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode asked = json.readTree(System.in);
        ObjectNode answer = json.createObjectNode();
        ArrayNode assigned = answer.putArray("assigned");
        for (JsonNode each : asked.get("assign")) assign(each, assigned.addObject());
        ArrayNode matched = answer.putArray("matched");
        for (JsonNode each : asked.get("match")) match(each, matched);
        System.out.println(json.writeValueAsString(answer));
    }

    private static void match(JsonNode asked, ArrayNode answer) {
        try {
            Pattern pattern = Pattern.compile(asked.get("pattern").asText());
            ArrayNode found = answer.addArray();
            for (JsonNode name : asked.get("names")) found.add(pattern.matcher(name.asText()).matches());
        } catch (PatternSyntaxException error) {
            answer.addNull();
        }
    }

    private static void assign(JsonNode asked, ObjectNode answer) {
        Map<Uuid, Integer> counts = new HashMap<>();
        asked.get("counts").fields().forEachRemaining(each -> counts.put(id(each.getKey()), each.getValue().asInt()));
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new TreeMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        asked.get("members").fields().forEachRemaining(each -> {
            Set<Uuid> topics = new HashSet<>();
            for (JsonNode topic : each.getValue().get("topics")) topics.add(id(topic.asText()));
            Map<Uuid, Set<Integer>> target = new HashMap<>();
            for (JsonNode one : each.getValue().get("target")) {
                Uuid topic = id(one.get(0).asText());
                target.computeIfAbsent(topic, none -> new HashSet<>()).add(one.get(1).asInt());
                owners.computeIfAbsent(topic, none -> new HashMap<>()).put(one.get(1).asInt(), each.getKey());
            }
            subscriptions.add(topics);
            members.put(each.getKey(), new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(), Optional.ofNullable(each.getValue().get("instance_id").textValue()), topics, new Assignment(target)));
        });
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            asked.get("assignor").asText().equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, MemberAssignment> found = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        }).members();
        found.forEach((member, assignment) -> {
            ArrayNode partitions = answer.putArray(member);
            assignment.partitions().forEach((topic, numbers) -> {
                for (int number : numbers) partitions.addArray().add((int) topic.getLeastSignificantBits()).add(number);
            });
        });
    }

    private static Uuid id(String topic) {
        return new Uuid(0, Long.parseLong(topic));
    }
}
