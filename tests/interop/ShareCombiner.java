import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.kafka.coordinator.share.PersisterStateBatchCombiner;
import org.apache.kafka.server.share.persister.PersisterStateBatch;

/**
 * Combines batches of states as Kafka's share coordinator does. Each line of the input is a start offset, the old
 * batches and the new ones, between "|"; a batch is "first,last,state,count". Prints the combined ones.
 */
public final class ShareCombiner {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split("\\|", -1);
            var combined = new PersisterStateBatchCombiner(
                parse(parts[1]), parse(parts[2]), Long.parseLong(parts[0])).combineStateBatches();
            System.out.println(combined.stream().map(each ->
                each.firstOffset() + "," + each.lastOffset() + "," + each.deliveryState() + "," + each.deliveryCount())
                .collect(Collectors.joining(" ")));
        }
    }

    private static List<PersisterStateBatch> parse(String text) {
        List<PersisterStateBatch> batches = new ArrayList<>();
        for (String word : text.isEmpty() ? new String[0] : text.split(" ")) {
            String[] fields = word.split(",");
            batches.add(new PersisterStateBatch(Long.parseLong(fields[0]), Long.parseLong(fields[1]),
                Byte.parseByte(fields[2]), Short.parseShort(fields[3])));
        }
        return batches;
    }
}
