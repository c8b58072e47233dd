import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's own client does the tasks of tests/wire/clients/features.py: each line of stdin is one, and gets a line of
 * stdout with its name and what was seen, or the failure. All in one JVM, several at a time.
 */
public final class Features {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long TAKES_MS = 30_000;
    private static final int THREADS = 6; // most of the time they wait
    private static final String ASSIGNORS = "org.apache.kafka.clients.consumer.";
    private static final Map<String, String> ASSIGNOR = Map.of(
        "range", ASSIGNORS + "RangeAssignor",
        "roundrobin", ASSIGNORS + "RoundRobinAssignor",
        "sticky", ASSIGNORS + "StickyAssignor",
        "cooperative-sticky", ASSIGNORS + "CooperativeStickyAssignor");

    private final JsonNode task;
    private final JsonNode options;
    private final String topic;
    private final String group;
    private final List<String> values = new ArrayList<>();
    private final Map<String, Object> said = new TreeMap<>();

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<JsonNode> tasks = new ArrayList<>();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) tasks.add(JSON.readTree(line));
        ExecutorService threads = Executors.newFixedThreadPool(THREADS);
        tasks.forEach(each -> threads.execute(() -> answer(each)));
        threads.shutdown();
        threads.awaitTermination(5, TimeUnit.MINUTES);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void answer(JsonNode task) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("name", task.get("name").asText());
        try {
            Features one = new Features(task);
            one.run(task.get("operation").asText());
            answer.put("said", one.said);
        } catch (Exception | Error error) {
            answer.put("failure", Stream.of(error.getStackTrace()).limit(8).reduce(
                error + " <- " + error.getCause(), (text, frame) -> text + "\n    " + frame, String::concat));
        }
        try {
            String line = JSON.writeValueAsString(answer);
            synchronized (System.out) {
                System.out.println(line);
            }
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private Features(JsonNode task) {
        this.task = task;
        options = task.get("options");
        topic = task.get("topic").asText();
        group = task.get("group").asText();
        task.get("values").forEach(each -> values.add(each.asText()));
    }

    private void run(String operation) throws Exception {
        switch (operation) {
            case "produce" -> produce();
            case "transact" -> transact();
            case "transform" -> transform();
            case "assign" -> assign();
            case "times" -> times();
            case "share" -> share(Map.of("partition.assignment.strategy", ASSIGNOR.get(option("assignor"))));
            case "share_next" -> share(Map.of("group.protocol", "consumer"));
            case "come_back" -> comeBack();
            case "secure" -> secure();
            default -> {
                try (Admin admin = Admin.create(settings(Map.of()))) {
                    administer(admin, operation);
                }
            }
        }
    }

    private void administer(Admin admin, String operation) throws Exception {
        switch (operation) {
            case "topics" -> topics(admin);
            case "configs" -> configs(admin);
            case "partitions" -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            case "delete_records" -> said.put("low_watermark", admin
                .deleteRecords(Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(3)))
                .lowWatermarks().get(new TopicPartition(topic, 0)).get().lowWatermark());
            case "groups" -> groups(admin);
            case "reset" -> admin.alterConsumerGroupOffsets(
                group, Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(3))).all().get();
            case "acls" -> acls(admin);
            case "users" -> users(admin);
            default -> throw new IllegalArgumentException("no operation " + operation);
        }
    }

    // --- settings ---

    private String option(String name) {
        return options.get(name).asText();
    }

    private Properties settings(Map<String, Object> more) {
        return settings(options.get("security"), more);
    }

    private Properties settings(JsonNode security, Map<String, Object> more) {
        Properties found = new Properties();
        found.put("bootstrap.servers", task.get("bootstrap").asText());
        found.put("client.id", task.get("name").asText());
        if (security != null) {
            found.put("security.protocol", security.get("protocol").asText());
            if (security.has("ca")) {
                found.put("ssl.truststore.type", "PEM");
                found.put("ssl.truststore.location", security.get("ca").asText());
            }
            if (security.has("mechanism")) {
                String mechanism = security.get("mechanism").asText();
                String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
                found.put("sasl.mechanism", mechanism);
                found.put("sasl.jaas.config", String.format(
                    "org.apache.kafka.common.security.%s required username=\"%s\" password=\"%s\";",
                    module, security.get("user").asText(), security.get("password").asText()));
            }
        }
        found.putAll(more);
        return found;
    }

    private KafkaProducer<String, String> producer(Map<String, Object> more) {
        return new KafkaProducer<>(settings(more), new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(Map<String, Object> more) {
        Properties found = settings(Map.of(
            "group.id", group,
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "fetch.max.wait.ms", "50"));
        if (!more.containsKey("group.protocol")) found.put("heartbeat.interval.ms", "100");
        found.putAll(more);
        return new KafkaConsumer<>(found, new StringDeserializer(), new StringDeserializer());
    }

    private static void send(KafkaProducer<String, String> producer, String topic, List<String> values)
            throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String value : values) sent.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
        producer.flush();
        for (Future<RecordMetadata> each : sent) each.get();
    }

    // --- producing ---

    private void produce() throws Exception {
        Map<String, Object> more = Map.of(
            "acks", option("acks"),
            "compression.type", options.has("codec") ? option("codec") : "none",
            "enable.idempotence", String.valueOf(options.has("idempotent")),
            "linger.ms", "100");
        try (KafkaProducer<String, String> producer = producer(more)) {
            send(producer, topic, values);
        }
    }

    private KafkaProducer<String, String> transactional() {
        KafkaProducer<String, String> producer = producer(Map.of("transactional.id", option("transactional_id")));
        producer.initTransactions();
        return producer;
    }

    private void transact() throws Exception {
        int half = values.size() / 2;
        try (KafkaProducer<String, String> producer = transactional()) {
            producer.beginTransaction();
            send(producer, topic, values.subList(0, half));
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, topic, values.subList(half, values.size()));
            producer.abortTransaction();
        }
    }

    private void transform() throws Exception {
        try (KafkaProducer<String, String> producer = transactional();
                KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.subscribe(List.of(topic));
            List<String> read = take(consumer, values.size());
            producer.beginTransaction();
            send(producer, option("target"), read);
            Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
            for (TopicPartition at : consumer.assignment()) {
                positions.put(at, new OffsetAndMetadata(consumer.position(at)));
            }
            producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
            producer.commitTransaction();
        }
    }

    // --- consuming ---

    private static List<String> take(KafkaConsumer<String, String> consumer, int count) {
        List<String> found = new ArrayList<>();
        long deadline = System.currentTimeMillis() + TAKES_MS;
        while (found.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(found.size() + " of " + count + " records");
            }
            for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofMillis(100))) found.add(each.value());
        }
        return found;
    }

    private void assign() {
        String isolation = options.has("isolation") ? option("isolation") : "read_uncommitted";
        try (KafkaConsumer<String, String> consumer = consumer(Map.of("isolation.level", isolation))) {
            consumer.assign(IntStream.range(0, options.get("partitions").asInt())
                .mapToObj(each -> new TopicPartition(topic, each)).toList());
            said.put("values", take(consumer, options.get("count").asInt()));
        }
    }

    private void times() {
        TopicPartition at = new TopicPartition(topic, 3);
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            for (String[] each : new String[][] {{"offset", "time_ms"}, {"after_all", "later_ms"}}) {
                OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(at, options.get(each[1]).asLong())).get(at);
                said.put(each[0], found == null ? null : found.offset());
            }
            said.put("begin", consumer.beginningOffsets(Set.of(at)).get(at));
            said.put("end", consumer.endOffsets(Set.of(at)).get(at));
        }
    }

    private boolean isAtEnd(KafkaConsumer<String, String> consumer) {
        return consumer.assignment().stream().allMatch(at -> consumer.position(at) == values.size() / 4);
    }

    private static boolean commits(KafkaConsumer<String, String> consumer) {
        try {
            consumer.commitSync();
            return true;
        } catch (RebalanceInProgressException again) {
            return false; // cooperative members divide twice
        }
    }

    private void share(Map<String, Object> more) {
        List<String> read = new ArrayList<>();
        try (KafkaConsumer<String, String> one = consumer(more); KafkaConsumer<String, String> two = consumer(more)) {
            List<KafkaConsumer<String, String>> both = List.of(one, two);
            both.forEach(each -> each.subscribe(List.of(topic)));
            long deadline = System.currentTimeMillis() + TAKES_MS;
            boolean isDone = false;
            while (!isDone && System.currentTimeMillis() < deadline) {
                for (KafkaConsumer<String, String> each : both) {
                    each.poll(Duration.ofMillis(50)).forEach(record -> read.add(record.value()));
                }
                isDone = both.stream().allMatch(each -> each.assignment().size() == 2 && isAtEnd(each))
                    && both.stream().allMatch(Features::commits);
            }
            said.put("shares", both.stream().map(each -> each.assignment().size()).toList());
        }
        said.put("values", read);
    }

    private void comeBack() {
        Map<String, Object> member = Map.of("group.instance.id", option("instance"));
        List<String> read = new ArrayList<>();
        Map<String, Object> few = new HashMap<>(member);
        few.put("max.poll.records", "12");
        try (KafkaConsumer<String, String> first = consumer(few)) {
            first.subscribe(List.of(topic));
            read.addAll(take(first, 12));
            first.commitSync();
        }
        try (KafkaConsumer<String, String> again = consumer(member)) {
            again.subscribe(List.of(topic));
            read.addAll(take(again, values.size() - read.size()));
            said.put("assigned", again.assignment().size());
        }
        said.put("values", read);
    }

    // --- administration ---

    private void topics(Admin admin) throws Exception {
        NewTopic wanted = new NewTopic(topic, 3, (short) 1).configs(Map.of("retention.ms", "86400000"));
        admin.createTopics(List.of(wanted)).all().get();
        int count = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
        said.put("partitions", count);
        admin.deleteTopics(List.of(option("old"))).all().get();
    }

    private void configs(Admin admin) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Collection<AlterConfigOp> changes = Stream.of(
            new ConfigEntry("retention.ms", "12345"),
            new ConfigEntry("cleanup.policy", "compact")
        ).map(each -> new AlterConfigOp(each, AlterConfigOp.OpType.SET)).toList();
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        said.put("retention.ms",
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get("retention.ms").value());
    }

    private void groups(Admin admin) throws Exception {
        said.put("is_listed", admin.listConsumerGroups().all().get().stream()
            .anyMatch(each -> each.groupId().equals(group)));
        said.put("state", admin.describeConsumerGroups(List.of(group)).all().get().get(group).state().toString());
        said.put("offset", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            .get(new TopicPartition(topic, 0)).offset());
        admin.deleteConsumerGroups(List.of(group)).all().get();
    }

    private void acls(Admin admin) throws Exception {
        ResourcePattern pattern = new ResourcePattern(ResourceType.TOPIC, topic, PatternType.LITERAL);
        AccessControlEntry entry =
            new AccessControlEntry("User:new", "*", AclOperation.READ, AclPermissionType.ALLOW);
        admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get();
        said.put("users", admin.describeAcls(new AclBindingFilter(pattern.toFilter(), AccessControlEntryFilter.ANY))
            .values().get().stream().map(each -> each.entry().principal()).sorted().toList());
        AccessControlEntryFilter old =
            new AccessControlEntryFilter("User:old", null, AclOperation.ANY, AclPermissionType.ANY);
        admin.deleteAcls(List.of(new AclBindingFilter(pattern.toFilter(), old))).all().get();
    }

    private void users(Admin admin) throws Exception {
        ScramMechanism mechanism = ScramMechanism.SCRAM_SHA_256;
        ScramCredentialInfo kind = new ScramCredentialInfo(mechanism, options.get("iterations").asInt());
        List<UserScramCredentialAlteration> changes = new ArrayList<>();
        changes.add(new UserScramCredentialUpsertion("new", kind, option("password")));
        for (ScramCredentialInfo each :
                admin.describeUserScramCredentials(List.of("old")).description("old").get().credentialInfos()) {
            changes.add(new UserScramCredentialDeletion("old", each.mechanism()));
        }
        admin.alterUserScramCredentials(changes).all().get();
        said.put("iterations", admin.describeUserScramCredentials(List.of("new")).description("new").get()
            .credentialInfos().get(0).iterations());
    }

    // --- security ---

    private void secure() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            send(producer, topic, values);
        }
        try (KafkaConsumer<String, String> consumer = consumer(Map.of())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            said.put("values", take(consumer, values.size()));
        }
        Properties wrong = settings(options.get("wrong"), Map.of("max.block.ms", "2000"));
        try (KafkaProducer<String, String> stranger =
                new KafkaProducer<>(wrong, new StringSerializer(), new StringSerializer())) {
            send(stranger, topic, List.of("never"));
            said.put("is_refused", false);
        } catch (ExecutionException error) {
            said.put("is_refused", error.getCause() instanceof AuthenticationException);
        }
    }
}
