package kafkalite.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.function.Supplier;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog;
import scala.Option;
import scala.reflect.ClassTag$;

/**
 * Where a stream began, in its checkpoint: without it a first micro-batch that is repeated would
 * begin where the log ends by then. The file is that of Spark's Kafka connector (its {@code
 * KafkaSourceInitialOffsetWriter}), so that each goes on with the other's checkpoint:
 *
 * <pre>
 *   sources/0/0    0 (one byte), v1, a line feed, {"orders":{"0":17}}
 * </pre>
 */
final class InitialOffsets extends HDFSMetadataLog<String> {
  private static final int VERSION = 1;

  /** The one entry; micro-batches are logged elsewhere. */
  private static final long ENTRY = 0;

  /** {@code checkpoint} is the source's own folder, which is made if need be. */
  InitialOffsets(String checkpoint) {
    super(SparkSession.active(), checkpoint, false, ClassTag$.MODULE$.apply(String.class));
  }

  /** The offsets that are kept; else those that are asked for, which are kept from then on. */
  String orKeep(Supplier<String> asked) {
    Option<String> kept = get(ENTRY);
    if (kept.isDefined()) {
      return kept.get();
    }
    String offsets = asked.get();
    if (!add(ENTRY, offsets)) {
      throw new IllegalStateException("another query has just begun with this checkpoint");
    }
    return offsets;
  }

  @Override
  public void serialize(String offsets, OutputStream out) {
    try {
      out.write(0); // Spark 2.1.0 expects it
      out.write(("v" + VERSION + "\n" + offsets).getBytes(StandardCharsets.UTF_8));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public String deserialize(InputStream in) {
    try {
      in.read();
      String content = new String(in.readAllBytes(), StandardCharsets.UTF_8);
      if (content.startsWith("{")) {
        return content; // of Spark 2.1.0
      }
      int lineEnd = content.indexOf('\n');
      validateVersion(content.substring(0, Math.max(lineEnd, 0)), VERSION);
      return content.substring(lineEnd + 1);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
