import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.List;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

/**
 * Writes segments in the formats before version 2, which no broker of today writes, with Kafka's own builder.
 *
 * <p>Arguments: a folder, then names out of v0-none, v1-gzip, v1-lz4-append-time, mixed and so on. Each name becomes
 * legacy-name-0/00000000000000000000.log. A compressed entry holds several records, and the last two entries are such
 * as compaction leaves: a hole between the inner offsets, and inner offsets that do not begin at the entry's base.
 */
public final class Legacy {
    private static final long TIME = 1_500_000_000_000L;

    public static void main(String[] args) throws IOException {
        for (String name : List.of(args).subList(1, args.length)) {
            Path directory = Files.createDirectories(Path.of(args[0], "legacy-" + name + "-0"));
            Path file = directory.resolve("00000000000000000000.log");
            try (FileChannel channel =
                    FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
                write(channel, name.split("-"));
            }
        }
    }

    private static void write(FileChannel channel, String[] name) throws IOException {
        if (name[0].equals("mixed")) {
            append(channel, (byte) 0, Compression.NONE, TimestampType.CREATE_TIME, 0, 0, 2);
            append(channel, (byte) 0, Compression.gzip().build(), TimestampType.CREATE_TIME, 3, 3, 4, 5);
            append(channel, (byte) 1, Compression.snappy().build(), TimestampType.CREATE_TIME, 6, 6, 7, 8);
            append(channel, (byte) 1, Compression.NONE, TimestampType.LOG_APPEND_TIME, 9, 9);
            append(channel, (byte) 2, Compression.lz4().build(), TimestampType.CREATE_TIME, 10, 10, 11, 12);
            return;
        }
        byte magic = Byte.parseByte(name[0].substring(1));
        Compression compression = Compression.of(CompressionType.forName(name[1])).build();
        TimestampType type = name.length > 2 ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        append(channel, magic, compression, type, 0, 0, 1, 2);
        append(channel, magic, compression, type, 3, 3);
        append(channel, magic, compression, type, 10, 10, 11, 14);
        append(channel, magic, compression, type, 20, 21, 23);
    }

    /** One compressed entry with these inner offsets, or as many plain entries. */
    private static void append(
            FileChannel channel, byte magic, Compression compression, TimestampType type, long base, long... offsets)
            throws IOException {
        // The leader epoch is version 2's; the formats before it have no field for it.
        try (MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(65536), magic, compression, type, base, TIME + 500, 0)) {
            for (long offset : offsets) {
                builder.appendWithOffset(offset, TIME + offset * 10, key(offset), value(offset));
            }
            ByteBuffer bytes = builder.build().buffer();
            while (bytes.hasRemaining()) {
                channel.write(bytes);
            }
        }
    }

    private static byte[] key(long offset) {
        return offset % 3 == 1 ? null : ("key-" + offset).getBytes();
    }

    /** A tombstone, an empty value, or a text that compresses. */
    private static byte[] value(long offset) {
        if (offset == 2) {
            return null;
        }
        return offset == 3 ? new byte[0] : ("value-" + offset + " ").repeat(20).getBytes();
    }
}
