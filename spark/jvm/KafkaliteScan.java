package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The scan of one query: the columns that it uses, and the ranges that its filters leave. */
record KafkaliteScan(StructType readSchema, CaseInsensitiveStringMap options, RangeFilters filters)
    implements Scan, Batch {
  @Override
  public String description() {
    return KafkaliteSource.NAME + " engine=jvm columns=" + List.of(readSchema.fieldNames())
        + " filters=" + filters;
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return new KafkaliteStream(this, checkpoint);
  }

  @Override
  public InputPartition[] planInputPartitions() {
    ObjectNode request = Planner.request("batch", options).put("schema", sentSchema());
    filters.cut(request);
    return ranges(Planner.ask(request)).toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new RangeReader.Factory(readSchema, sentSchema());
  }

  /** The columns that a stream has, as endpoint and planner take them. */
  String sentSchema() {
    return RangeReader.sentSchema(readSchema);
  }

  /** The ranges of a plan, and where each is to be read. */
  static List<Range> ranges(JsonNode plan) {
    String host = thisHost();
    String endpoint = plan.path("endpoint").asText(null);
    String read = plan.get("read").toString();
    List<Range> ranges = new ArrayList<>();
    for (JsonNode each : plan.get("ranges")) {
      ranges.add(new Range(each.get(0).asText(), each.get(1).asInt(), each.get(2).asLong(),
          each.get(3).asLong(), each.path(4).asText(null), read, endpoint, host));
    }
    return ranges;
  }

  /** This machine as Spark names it; an endpoint is reached from its own machine only. */
  static String thisHost() {
    return SparkEnv.get().blockManager().blockManagerId().host();
  }

  /**
   * Offsets {@code start .. stop} of a partition, read by one task.
   *
   * @param path the directory of the partition's files, if they are read; else null
   * @param read the keys that the requests for all ranges have in common, a JSON object
   * @param endpoint of a broker on the machine {@code host}, or null
   */
  record Range(String topic, int partition, long start, long stop, String path, String read,
      String endpoint, String host) implements InputPartition {
    @Override
    public String toString() {
      return topic + "-" + partition + " offsets " + start + " to " + stop;
    }
  }

  /** Takes what Spark pushes down. */
  static final class Builder
      implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownV2Filters {
    private final StructType schema;
    private CaseInsensitiveStringMap options;
    private final RangeFilters filters = new RangeFilters();
    private StructType wanted;

    Builder(StructType schema, CaseInsensitiveStringMap options) {
      this.schema = schema;
      this.wanted = schema;
      this.options = options;
    }

    /** What the query leaves out, or wants some fields of, may have to be decoded all the same. */
    @Override
    public void pruneColumns(StructType required) {
      if (required.equals(schema)) {
        return; // nothing is left out, and nobody is asked
      }
      ObjectNode request = Planner.request("prune", options);
      request.set("columns", Endpoint.JSON.valueToTree(schema.fieldNames()));
      request.set("wanted", Endpoint.JSON.valueToTree(required.fieldNames()));
      ObjectNode fields = request.putObject("fields");
      for (var column : schema.fields()) {
        if (column.dataType() instanceof StructType struct) {
          fields.set(column.name(), Endpoint.JSON.valueToTree(struct.fieldNames()));
        }
      }
      JsonNode answer = Planner.ask(request);
      Map<String, String> all = new HashMap<>(options.asCaseSensitiveMap());
      answer.get("options").properties()
          .forEach(each -> all.put(each.getKey(), each.getValue().asText()));
      options = new CaseInsensitiveStringMap(all);
      Set<String> whole = new HashSet<>();
      answer.get("whole").forEach(name -> whole.add(name.asText()));
      List<String> names = List.of(required.fieldNames());
      wanted = new StructType();
      for (var field : schema.fields()) {
        if (whole.contains(field.name())) {
          wanted = wanted.add(field);
        } else if (names.contains(field.name())) {
          wanted = wanted.add(required.apply(field.name()));
        }
      }
    }

    @Override
    public Predicate[] pushPredicates(Predicate[] predicates) {
      return filters.push(predicates);
    }

    @Override
    public Predicate[] pushedPredicates() {
      return filters.pushed();
    }

    @Override
    public Scan build() {
      return new KafkaliteScan(wanted, options, filters);
    }
  }
}
