import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Carries out a plan with Kafka's own producers. The plan is JSON on stdin:
 *
 * <pre>
 * {"bootstrap": "host:port",
 *  "producers": {"name": {"setting": "value"}},
 *  "steps": [["init"|"begin"|"commit"|"abort"|"flush", "name"],
 *            ["send", "name", topic, partition, timestamp or null, key, value, [[header, value]]],
 *            ["offset", "name", group, topic, partition, offset]]}
 * </pre>
 *
 * Keys and values are base64 or null. A batch ends only with "flush", "commit" or "abort". The program ends without
 * closing the producers, so a transaction that the plan leaves open stays open on the broker.
 */
public final class Writer {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        new Writer().run(new ObjectMapper().readTree(System.in));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private void run(JsonNode plan) throws Exception {
        plan.get("producers").fields().forEachRemaining(
            entry -> producers.put(entry.getKey(), producer(plan.get("bootstrap").asText(), entry.getValue())));
        for (JsonNode step : plan.get("steps")) {
            KafkaProducer<byte[], byte[]> producer = producers.get(step.get(1).asText());
            switch (step.get(0).asText()) {
                case "init" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "commit" -> producer.commitTransaction();
                case "abort" -> {
                    // Otherwise the client drops the records instead of sending them.
                    producer.flush();
                    producer.abortTransaction();
                }
                case "flush" -> producer.flush();
                case "offset" -> producer.sendOffsetsToTransaction(
                    Map.of(
                        new TopicPartition(step.get(3).asText(), step.get(4).asInt()),
                        new OffsetAndMetadata(step.get(5).asLong())),
                    new ConsumerGroupMetadata(step.get(2).asText()));
                case "send" -> sent.add(producer.send(record(step)));
                default -> throw new IllegalArgumentException("unknown step " + step);
            }
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, JsonNode settings) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("linger.ms", "60000");
        config.put("batch.size", "900000");
        config.put("max.request.size", "1000000");
        settings.fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode step) throws IOException {
        RecordHeaders headers = new RecordHeaders();
        for (JsonNode header : step.get(7)) {
            headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
        }
        Long timestamp = step.get(4).isNull() ? null : step.get(4).asLong();
        return new ProducerRecord<>(
            step.get(2).asText(), step.get(3).asInt(), timestamp, bytes(step.get(5)), bytes(step.get(6)), headers);
    }

    private static byte[] bytes(JsonNode base64) throws IOException {
        return base64.isNull() ? null : base64.binaryValue();
    }
}
