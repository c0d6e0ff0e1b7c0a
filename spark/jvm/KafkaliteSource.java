package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The columnar engine behind {@code format("kafkalite")}: Spark reads topics as Arrow batches that
 * Rust makes, without Python and without a row in between.
 *
 * <pre>
 *   driver    KafkaliteSource ─► KafkaliteScan ─► ranges ◄── plan ── `kafkalite arrow serve`, a child
 *   executor  RangeReader ◄── Arrow IPC ── the broker's Arrow listener, or a child of its own
 * </pre>
 *
 * <p>Spark asks the class path for a format before it asks Python, so that this class is what it
 * finds wherever the jar is. What the class does not do itself it hands to the Python Data Source
 * of the same name: writing, always, and reading with {@code engine=python}. Options and schema
 * have one owner, kafkalite/spark/options/read.py: the child is asked.
 */
public final class KafkaliteSource implements TableProvider, DataSourceRegister {
  static final String NAME = "kafkalite";

  /** An option that no user sets; kafkalite/spark/options/write.py takes it. */
  private static final String QUERY_ID = "kafkalite.query.id";

  private static final Logger LOG = LoggerFactory.getLogger(KafkaliteSource.class);

  /** The ways to say what is read that are no paths. */
  private static final List<String> TOPICS = List.of("subscribe", "subscribePattern", "assign");

  /** The engine that was logged last: a choice is logged once, not with every query. */
  private static final AtomicReference<String> LOGGED = new AtomicReference<>("");

  private PythonDataSourceV2 python;

  @Override
  public String shortName() {
    return NAME;
  }

  /** The schema of a read may be given, and that of a write is. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap given) {
    CaseInsensitiveStringMap options = options(given);
    if (!isColumnar(options)) {
      return python().inferSchema(given);
    }
    JsonNode answer = Planner.ask(Planner.request("schema", options));
    return StructType.fromDDL(answer.get("schema").asText());
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> given) {
    CaseInsensitiveStringMap options = options(new CaseInsensitiveStringMap(given));
    Table inPython = python().getTable(schema, partitioning, options.asCaseSensitiveMap());
    if (isColumnar(options)) {
      return new Columnar(schema, options, (SupportsWrite) inPython);
    }
    log("python");
    return inPython;
  }

  /** Spark's own wrapper of the Python Data Source; it starts nothing before it is used. */
  private PythonDataSourceV2 python() {
    if (python == null) {
      python = new PythonDataSourceV2();
      python.setShortName(NAME);
    }
    return python;
  }

  /**
   * The options of a query, or of a table of Spark's catalog, which has them among
   * properties of its own: owner, comment, and a path, be it that of a folder for files
   * which a topic does not need.
   */
  private static CaseInsensitiveStringMap options(CaseInsensitiveStringMap given) {
    if (!given.containsKey(TableCatalog.PROP_PROVIDER)) {
      return given;
    }
    Map<String, String> options = new HashMap<>();
    given.asCaseSensitiveMap().forEach((name, value) -> {
      if (name.startsWith(TableCatalog.OPTION_PREFIX)) {
        options.put(name.substring(TableCatalog.OPTION_PREFIX.length()), value);
      }
    });
    if (given.containsKey("path") && TOPICS.stream().noneMatch(given::containsKey)) {
      options.put("path", given.get("path").replaceFirst("^file:/+", "/"));
    }
    return new CaseInsensitiveStringMap(options);
  }

  /** Whether this class reads. A word that is no engine is refused by the owner of the options. */
  private static boolean isColumnar(CaseInsensitiveStringMap options) {
    return !options.getOrDefault("engine", "auto").trim().equalsIgnoreCase("python");
  }

  private static void log(String engine) {
    if (!LOGGED.getAndSet(engine).equals(engine)) {
      LOG.info("format(\"kafkalite\") reads with engine={}", engine);
    }
  }

  /** Read here, written in Python; a query of a table of the catalog brings no options, or more. */
  @SuppressWarnings("deprecation") // of schema(), which Spark derives columns() from
  private record Columnar(
      StructType schema, CaseInsensitiveStringMap options, SupportsWrite inPython)
      implements SupportsRead, SupportsWrite {
    @Override
    public String name() {
      return NAME;
    }

    @Override
    public Set<TableCapability> capabilities() {
      return inPython.capabilities();
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap more) {
      log("jvm");
      Map<String, String> all = new HashMap<>(options);
      all.putAll(more);
      return new KafkaliteScan.Builder(schema, new CaseInsensitiveStringMap(all));
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      String query = SparkSession.active().sparkContext().getLocalProperty("sql.streaming.queryId");
      return inPython.newWriteBuilder(query == null ? info : OfStream.of(info, query));
    }
  }

  /**
   * What a streaming query writes, be it in {@code foreachBatch}, with its id among the options:
   * Spark tells the tasks of it, but not Python's writer on the driver, which aborts what they have
   * begun if the write fails before one of them is done.
   */
  private record OfStream(LogicalWriteInfo info, CaseInsensitiveStringMap options)
      implements LogicalWriteInfo {
    static OfStream of(LogicalWriteInfo info, String query) {
      Map<String, String> options = new HashMap<>(info.options().asCaseSensitiveMap());
      options.put(QUERY_ID, query);
      return new OfStream(info, new CaseInsensitiveStringMap(options));
    }

    @Override
    public String queryId() {
      return info.queryId();
    }

    @Override
    public StructType schema() {
      return info.schema();
    }
  }
}
