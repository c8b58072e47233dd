import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Consumers of a group change over from one protocol to the other, one by one, while records are produced.
 *
 * <p>Arguments: servers, topic, partitions, group, then the steps: {@code classic:ASSIGNOR[@INSTANCE]} and
 * {@code consumer[@INSTANCE]} start a consumer, {@code -} stops the oldest. After each step the partitions
 * are spread evenly. Prints the type of the group after each step, then how many records were produced, seen,
 * seen twice, and how often a partition was lost or had two owners.
 */
public class Changing {
    private static final ConcurrentHashMap<String, AtomicInteger> SEEN = new ConcurrentHashMap<>();
    private static final ConcurrentHashMap<TopicPartition, Member> OWNERS = new ConcurrentHashMap<>();
    private static final AtomicInteger LOST = new AtomicInteger();
    private static final AtomicInteger SHARED = new AtomicInteger();
    private static final ConcurrentLinkedQueue<Throwable> FAILED = new ConcurrentLinkedQueue<>();

    /** One consumer, in a thread. */
    private static final class Member extends Thread implements ConsumerRebalanceListener {
        private final Properties settings = new Properties();
        private final String topic;
        private volatile boolean ends;
        private volatile int has;

        Member(String servers, String topic, String group, String kind) {
            this.topic = topic;
            String[] parts = kind.split("@");
            String[] protocol = parts[0].split(":");
            settings.put("bootstrap.servers", servers);
            settings.put("group.id", group);
            settings.put("group.protocol", protocol[0]);
            settings.put("auto.offset.reset", "earliest");
            settings.put("auto.commit.interval.ms", "200");
            settings.put("key.deserializer", StringDeserializer.class.getName());
            settings.put("value.deserializer", StringDeserializer.class.getName());
            if (protocol.length > 1) {
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + protocol[1]);
                settings.put("heartbeat.interval.ms", "300");
            }
            if (parts.length > 1) {
                settings.put("group.instance.id", parts[1]);
            }
        }

        @Override
        public void onPartitionsRevoked(java.util.Collection<TopicPartition> partitions) {
            partitions.forEach(each -> OWNERS.remove(each, this));
        }

        @Override
        public void onPartitionsLost(java.util.Collection<TopicPartition> partitions) {
            LOST.addAndGet(partitions.size());
            onPartitionsRevoked(partitions);
        }

        @Override
        public void onPartitionsAssigned(java.util.Collection<TopicPartition> partitions) {
            for (TopicPartition each : partitions) {
                if (OWNERS.put(each, this) != null) {
                    SHARED.incrementAndGet();
                }
            }
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings)) {
                consumer.subscribe(List.of(topic), this);
                while (!ends) {
                    consumer.poll(Duration.ofMillis(50)).forEach(
                        record -> SEEN.computeIfAbsent(record.value(), any -> new AtomicInteger()).incrementAndGet());
                    has = consumer.assignment().size();
                }
                if (settings.containsKey("group.instance.id")) {
                    consumer.commitSync();
                }
            } catch (Throwable failure) {
                FAILED.add(failure);
            } finally {
                OWNERS.values().removeIf(owner -> owner == this);  // a static member takes them along
            }
        }
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        String topic = args[1];
        int partitions = Integer.parseInt(args[2]);
        String group = args[3];
        List<Member> members = new ArrayList<>();
        int produced = 0;
        Properties producing = new Properties();
        producing.put("bootstrap.servers", servers);
        producing.put("key.serializer", StringSerializer.class.getName());
        producing.put("value.serializer", StringSerializer.class.getName());
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(producing);
                Admin admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, servers))) {
            for (String step : List.of(args).subList(4, args.length)) {
                if (step.equals("-")) {
                    Member oldest = members.remove(0);
                    oldest.ends = true;
                    oldest.join();
                } else {
                    Member member = new Member(servers, topic, group, step);
                    members.add(member);
                    member.start();
                }
                long ends = System.currentTimeMillis() + 60_000;
                int even = partitions / members.size();
                while (!members.stream().allMatch(member -> member.has == even)) {
                    produced = send(producer, topic, partitions, produced);
                    if (!FAILED.isEmpty() || System.currentTimeMillis() > ends) {
                        break;
                    }
                    Thread.sleep(20);
                }
                String type = admin.listGroups().all().get().stream()
                    .filter(each -> each.groupId().equals(group)).findFirst().get().type().get().toString();
                System.out.println(step + " " + type + " " + members.stream().map(each -> each.has).toList());
            }
            producer.flush();
            long ends = System.currentTimeMillis() + 30_000;
            while (SEEN.size() < produced && System.currentTimeMillis() < ends) {
                Thread.sleep(20);
            }
        }
        for (Member member : members) {
            member.ends = true;
            member.join();
        }
        long twice = SEEN.values().stream().filter(count -> count.get() > 1).count();
        System.out.println("produced " + produced + " seen " + SEEN.size() + " twice " + twice
            + " lost " + LOST + " shared " + SHARED + " failed " + FAILED);
        System.exit(0);
    }

    private static int send(KafkaProducer<String, String> producer, String topic, int partitions, int produced) {
        for (int number = 0; number < partitions; number++) {
            producer.send(new ProducerRecord<>(topic, number, null, "r" + produced++));
        }
        return produced;
    }
}
