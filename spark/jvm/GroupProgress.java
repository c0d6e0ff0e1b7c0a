package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.UncheckedIOException;
import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Tells a consumer group how far a run of a query is: the option {@code commitOffsetsToGroup}.
 *
 * <p>Spark's checkpoint alone says where a query goes on; the group is for tools that show
 * lag. When, and why, is said in kafkalite/spark/plan/group_progress.py, which does the same
 * of the Python Data Source.
 */
final class GroupProgress {
  private static final Logger LOG = LoggerFactory.getLogger(GroupProgress.class);
  private static final long AGAIN_NANOS = TimeUnit.HOURS.toNanos(1);
  private static final long PAUSE_NANOS = TimeUnit.SECONDS.toNanos(10);

  private final CaseInsensitiveStringMap options;

  /** What is committed; null before the first time. */
  private JsonNode committed;

  private long at;
  private boolean hasFailed;

  GroupProgress(CaseInsensitiveStringMap options) {
    this.options = options;
  }

  /**
   * Commits where a micro-batch begins, if the query has a group and the group does not know. What
   * fails the first commit fails the query, as a wrong option does; later ones are tried again.
   */
  void commit(JsonNode start) {
    if (!options.containsKey("commitOffsetsToGroup") || !isDue(start)) {
      return;
    }
    ObjectNode request = Planner.request("commit", options);
    request.set("start", start);
    request.put("first", committed == null);
    try {
      Planner.ask(request);
      committed = start;
      hasFailed = false;
    } catch (IllegalArgumentException | UncheckedIOException error) {
      if (committed == null) {
        throw error;
      }
      hasFailed = true;
      LOG.warn("{}", error.getMessage());
    }
    at = System.nanoTime();
  }

  private boolean isDue(JsonNode start) {
    if (committed == null) {
      return true;
    }
    long since = System.nanoTime() - at;
    return hasFailed ? since >= PAUSE_NANOS : !committed.equals(start) || since >= AGAIN_NANOS;
  }
}
