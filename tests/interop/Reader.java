import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints what Kafka's own consumer sees of some partitions, as JSON.
 *
 * <p>Arguments: bootstrap, then "topic partition" pairs. Output: "topic-partition" to isolation level to
 * {start, end, records}, with base64 keys and values and -1 for a missing leader epoch.
 */
public final class Reader {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        ObjectNode all = JSON.createObjectNode();
        for (String isolation : List.of("read_uncommitted", "read_committed")) {
            Map<String, Object> config = Map.of(
                "bootstrap.servers", args[0],
                "isolation.level", isolation,
                "enable.auto.commit", "false",
                "exclude.internal.topics", "false",
                "auto.offset.reset", "none",
                "fetch.max.wait.ms", "20");
            try (var consumer = new KafkaConsumer<>(
                    config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                for (int at = 1; at + 1 < args.length; at += 2) {
                    TopicPartition partition = new TopicPartition(args[at], Integer.parseInt(args[at + 1]));
                    all.withObject("/" + partition).set(isolation, read(consumer, partition));
                }
            }
        }
        System.out.println(JSON.writeValueAsString(all));
    }

    private static ObjectNode read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition) {
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        ObjectNode seen = JSON.createObjectNode();
        seen.put("start", consumer.beginningOffsets(List.of(partition)).get(partition));
        seen.put("end", end);
        ArrayNode records = seen.putArray("records");
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (consumer.position(partition) < end) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException(partition + ": at " + consumer.position(partition) + " of " + end);
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                records.add(json(record));
            }
        }
        return seen;
    }

    private static ObjectNode json(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode node = JSON.createObjectNode();
        node.put("offset", record.offset());
        node.put("timestamp", record.timestamp());
        node.put("timestamp_type", record.timestampType().toString());
        node.put("leader_epoch", record.leaderEpoch().orElse(-1));
        node.put("key", record.key());
        node.put("value", record.value());
        ArrayNode headers = node.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return node;
    }
}
