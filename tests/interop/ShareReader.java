import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Takes records of a topic with one partition as a member of a share group, which begins at the log start.
 *
 * <p>Arguments: bootstrap, topic, group, then one word for each delivery of a record in this run: the first word
 * says what is done with each offset when it comes for the first time, the second one when it comes again. "A"
 * accepts, "R" releases, "X" rejects; "." is an offset that should not come. Ends when all have come; what comes
 * besides is released. Prints "offset deliveryCount" for each that has a letter. Without words it is a member for
 * five seconds, in which the group begins.
 */
public final class ShareReader {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final Map<Character, AcknowledgeType> TYPES =
        Map.of('A', AcknowledgeType.ACCEPT, 'R', AcknowledgeType.RELEASE, 'X', AcknowledgeType.REJECT);

    public static void main(String[] args) throws Exception {
        String group = args[2];
        beginAtTheStart(args[0], group);
        long expected = 0;
        for (int at = 3; at < args.length; at++) {
            expected += args[at].chars().filter(each -> each != '.').count();
        }
        Map<Long, Integer> deliveries = new HashMap<>();
        Map<String, Object> config = Map.of(
            "bootstrap.servers", args[0],
            "group.id", group,
            "share.acknowledgement.mode", "explicit",
            "fetch.max.wait.ms", "100");
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        try (var consumer = new KafkaShareConsumer<>(
                config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            for (int turn = 0; args.length == 3 && turn < 25; turn++) {
                consumer.poll(Duration.ofMillis(200));
            }
            while (expected > 0) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(expected + " deliveries have not come");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    int word = 2 + deliveries.merge(record.offset(), 1, Integer::sum);
                    char letter = word < args.length && record.offset() < args[word].length()
                        ? args[word].charAt((int) record.offset()) : '.';
                    if (letter != '.') {
                        System.out.println(record.offset() + " " + record.deliveryCount().get());
                        expected--;
                    }
                    consumer.acknowledge(record, TYPES.getOrDefault(letter, AcknowledgeType.RELEASE));
                }
                consumer.commitSync().forEach((partition, error) -> error.ifPresent(each -> { throw each; }));
            }
        }
    }

    private static void beginAtTheStart(String bootstrap, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var entry = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(
                new ConfigResource(ConfigResource.Type.GROUP, group),
                List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
        }
    }
}
