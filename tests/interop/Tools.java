import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools in one JVM, one for each line of stdin: the class and its arguments, divided by
 * tabs. Prints what each says, and then how it ended.
 */
class Tools {
    /** Of the running tool: the first counts, since some catch what ends them in place of the JVM. */
    private static Integer status;

    public static void main(String[] args) throws Exception {
        System.setErr(System.out);
        Exit.setExitProcedure((code, message) -> {
            if (status == null) status = code;
            throw new Ended();
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            run(Class.forName(words[0]), Arrays.copyOfRange(words, 1, words.length));
            System.out.println("\n=== " + (status == null ? 0 : status));
        }
    }

    private static void run(Class<?> tool, String[] args) throws Exception {
        status = null;
        try {
            tool.getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) throw error;
        }
    }

    /** In place of the JVM's end. */
    private static class Ended extends Error {}
}
