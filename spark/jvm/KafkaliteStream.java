package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.CompositeReadLimit;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReadMinRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * The driver's side of a streaming query. Offsets are those of Spark's Kafka connector,
 * {@code {"orders":{"0":17}}}, so that a checkpoint can change engines. Every decision is
 * the planner's; what it cannot know is kept here: since when a batch waits, and the target
 * of a run that is to end.
 */
final class KafkaliteStream
    implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final KafkaliteScan scan;

  /** The folder of this source in the checkpoint of the query. */
  private final String checkpoint;

  /** Where the query began; null until Spark has asked. */
  private Offset initial;

  /** The ends of the partitions when they were last asked for; null before. */
  private JsonNode latest;

  private boolean isAvailableNow;

  /** Where a run with {@code Trigger.AvailableNow} ends; null until Spark has asked. */
  private JsonNode target;

  /** When Spark was last not told to wait, whether or not there was anything to read; null before. */
  private Long lastPlannedNanos;

  private final GroupProgress group;

  KafkaliteStream(KafkaliteScan scan, String checkpoint) {
    this.scan = scan;
    this.checkpoint = checkpoint;
    group = new GroupProgress(scan.options());
  }

  /** Spark asks more than once, also when it repeats the first micro-batch after a restart. */
  @Override
  public Offset initialOffset() {
    if (initial == null) {
      initial = deserializeOffset(new InitialOffsets(checkpoint).orKeep(this::resolvedStart));
    }
    return initial;
  }

  private String resolvedStart() {
    ObjectNode request = Planner.request("initial", scan.options());
    return Planner.ask(request.put("schema", scan.sentSchema())).get("offsets").toString();
  }

  @Override
  public Offset deserializeOffset(String json) {
    parsed(json);
    return new Offsets(json);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    ObjectNode request = Planner.request("schema", scan.options()).put("streaming", true);
    JsonNode limit = Planner.ask(request).path("limit");
    List<ReadLimit> limits = new ArrayList<>();
    if (limit.has("minRows")) {
      // The delay is an option that the planner knows; Spark hands the limit back as it is.
      limits.add(ReadLimit.minRows(limit.get("minRows").asLong(), 0));
    }
    if (limit.has("maxRows")) {
      limits.add(ReadLimit.maxRows(limit.get("maxRows").asLong()));
    }
    return switch (limits.size()) {
      case 0 -> ReadLimit.allAvailable();
      case 1 -> limits.get(0);
      default -> ReadLimit.compositeLimit(limits.toArray(ReadLimit[]::new));
    };
  }

  /** What is there when Spark first asks is read: to ask before it knows the start could end there. */
  @Override
  public void prepareForTriggerAvailableNow() {
    isAvailableNow = true;
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with a limit");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    JsonNode begin = parsed(start.json());
    group.commit(begin);
    JsonNode answer = ask(begin, limit);
    latest = answer.get("latest");
    if (isAvailableNow) {
      target = latest;
    }
    if (!answer.get("delayed").asBoolean()) {
      lastPlannedNanos = System.nanoTime();
    }
    JsonNode end = answer.get("offsets");
    // Spark compares texts. Another engine may have written this one with other spaces, or its
    // topics in another order, which would be a micro-batch without rows.
    return end.equals(begin) ? start : new Offsets(end.toString());
  }

  private JsonNode ask(JsonNode start, ReadLimit limit) {
    ObjectNode request = Planner.request("latest", scan.options());
    request.set("start", start);
    request.set("target", target);
    request.put("sinceMs", lastPlannedNanos == null
        ? Long.MAX_VALUE : TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - lastPlannedNanos));
    ObjectNode limits = request.putObject("limit");
    ReadLimit[] all =
        limit instanceof CompositeReadLimit both ? both.getReadLimits() : new ReadLimit[] {limit};
    for (ReadLimit each : all) {
      if (each instanceof ReadMaxRows most) {
        limits.put("maxRows", most.maxRows());
      } else if (each instanceof ReadMinRows least && !isAvailableNow) {
        // A run that ends by itself does not wait: nothing more would come.
        limits.put("minRows", least.minRows());
      }
    }
    return Planner.ask(request);
  }

  @Override
  public Offset reportLatestOffset() {
    return latest == null ? null : new Offsets(latest.toString());
  }

  /** How far behind the ends the query is, by the names of Spark's Kafka connector. */
  @Override
  public Map<String, String> metrics(Optional<Offset> consumed) {
    if (latest == null || consumed.isEmpty()) {
      return Map.of();
    }
    JsonNode at = parsed(consumed.get().json());
    LongSummaryStatistics behind = new LongSummaryStatistics();
    latest.properties().forEach(topic -> topic.getValue().properties().forEach(partition -> {
      long end = partition.getValue().asLong();
      behind.accept(end - at.path(topic.getKey()).path(partition.getKey()).asLong(end));
    }));
    return behind.getCount() == 0 ? Map.of() : Map.of(
        "minOffsetsBehindLatest", Long.toString(behind.getMin()),
        "maxOffsetsBehindLatest", Long.toString(behind.getMax()),
        "avgOffsetsBehindLatest", Double.toString(behind.getAverage()));
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    ObjectNode request = Planner.request("between", scan.options());
    request.set("start", parsed(start.json()));
    request.set("end", parsed(end.json()));
    return KafkaliteScan.ranges(Planner.ask(request)).toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return scan.createReaderFactory();
  }

  /** Offsets live in the checkpoint alone. */
  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {}

  /** What progress reports show as the source. */
  @Override
  public String toString() {
    return scan.description();
  }

  private static JsonNode parsed(String json) {
    try {
      return Endpoint.JSON.readTree(json);
    } catch (IOException error) {
      throw new UncheckedIOException("offsets of the checkpoint are no JSON: " + json, error);
    }
  }

  /** The next record of each partition, in the words of who has written it down. */
  private static final class Offsets extends Offset {
    private final String json;

    Offsets(String json) {
      this.json = json;
    }

    @Override
    public String json() {
      return json;
    }
  }
}
