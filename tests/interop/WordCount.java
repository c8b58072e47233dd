import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words with Kafka Streams, exactly once: each word's counts so far go to a topic. The arguments are the
 * servers, where the state is, the topic with lines and the one for counts. Ends when stdin does, or dies.
 */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", "word-count");
        settings.put("state.dir", args[1]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", "0"); // every count is sent, not only the last of a commit
        settings.put("commit.interval.ms", "100");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.session.timeout.ms", "6000"); // after a death the group waits so long
        settings.put("consumer.heartbeat.interval.ms", "500");
        settings.put("replication.factor", "1");

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[2], Consumed.with(Serdes.ByteArray(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts"))
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(args[3], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println(now));
        streams.start();
        while (System.in.read() >= 0) { }
        boolean isClosed = streams.close(Duration.ofSeconds(30));
        System.out.println(isClosed ? "closed" : "not closed");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
