package kafkalite.spark;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;

/**
 * Filters on topic, partition, offset and timestamp, which leave less to read.
 *
 * <p>The first three are exact: Spark need not look at them again, but for lists of offsets, of
 * which the least and the greatest cut. Of a timestamp only the lower bound cuts, as
 * {@code startingTimestamp} would: records may lie in any order of time, so that there can be
 * earlier ones behind the first, and Spark filters again.
 */
final class RangeFilters {
  /** Not the timestamp: beyond the year 294,246 it is null. */
  private static final Set<String> NEVER_NULL =
      Set.of("topic", "partition", "offset", "timestampType");
  private static final Set<String> COMPARISONS =
      Set.of("=", "<=>", "IN", "<>", "<", "<=", ">", ">=");
  private static final long MICROS_OF_MILLI = 1000;

  private final List<Predicate> pushed = new ArrayList<>();
  private final ArrayNode tests = Endpoint.JSON.createArrayNode();
  private long from = 0;
  private long until = Long.MAX_VALUE;
  private long timestampMs = -1;

  /** Takes the conjuncts that cut, and returns those that Spark must evaluate on rows. */
  Predicate[] push(Predicate[] predicates) {
    return Arrays.stream(predicates).filter(each -> !takes(each)).toArray(Predicate[]::new);
  }

  Predicate[] pushed() {
    return pushed.toArray(Predicate[]::new);
  }

  /** What the planner cuts by: partitions, offsets, the first record at or after a time (-1: any). */
  void cut(ObjectNode request) {
    ObjectNode cut = request.putObject("cut");
    cut.put("start", from).put("stop", until).put("timestamp", timestampMs).set("tests", tests);
  }

  /** Whether the predicate is one of these, and exact. */
  private boolean takes(Predicate predicate) {
    var children = predicate.children();
    if (children.length == 0 || !(children[0] instanceof NamedReference reference)) {
      return false;
    }
    String column = String.join(".", reference.fieldNames());
    if (predicate.name().equals("IS_NOT_NULL")) {
      return NEVER_NULL.contains(column);
    }
    List<Object> values = new ArrayList<>();
    for (int index = 1; index < children.length; index++) {
      if (!(children[index] instanceof Literal<?> literal) || literal.value() == null) {
        return false;
      }
      values.add(literal.value());
    }
    if (values.isEmpty()) {
      return false;
    }
    return switch (column) {
      case "topic" -> takesTopic(predicate, values);
      case "partition" -> takesPartition(predicate, values);
      case "offset" -> takesOffset(predicate, values);
      case "timestamp" -> takesTimestamp(predicate, values);
      default -> false;
    };
  }

  private boolean takesTopic(Predicate predicate, List<Object> values) {
    // Others would compare strings, which Spark does by their bytes.
    if (!Set.of("=", "<=>", "IN").contains(predicate.name())) {
      return false;
    }
    ArrayNode names = test("topic", predicate);
    values.forEach(each -> names.add(each.toString()));
    return pushed.add(predicate);
  }

  private boolean takesPartition(Predicate predicate, List<Object> values) {
    if (!COMPARISONS.contains(predicate.name())) {
      return false;
    }
    ArrayNode numbers = test("partition", predicate);
    values.forEach(each -> numbers.add(((Number) each).intValue()));
    return pushed.add(predicate);
  }

  /** The values, still to come, of one more test of partitions, in the words of the planner. */
  private ArrayNode test(String column, Predicate predicate) {
    return tests.addArray().add(column).add(predicate.name()).addArray();
  }

  private boolean takesOffset(Predicate predicate, List<Object> values) {
    long least = values.stream().mapToLong(each -> ((Number) each).longValue()).min().orElse(0);
    long most = values.stream().mapToLong(each -> ((Number) each).longValue()).max().orElse(0);
    long after = most == Long.MAX_VALUE ? most : most + 1;
    switch (predicate.name()) {
      case "=", "<=>", "IN" -> narrow(least, after);
      case "<" -> narrow(0, most);
      case "<=" -> narrow(0, after);
      case ">" -> narrow(after, Long.MAX_VALUE);
      case ">=" -> narrow(least, Long.MAX_VALUE);
      default -> {
        return false;
      }
    }
    pushed.add(predicate);
    return values.size() == 1;
  }

  private boolean takesTimestamp(Predicate predicate, List<Object> values) {
    if (Set.of("=", "<=>", ">", ">=").contains(predicate.name())) {
      long micros = ((Number) values.get(0)).longValue();
      // Kafka's index of times may be a millisecond behind.
      timestampMs = Math.max(timestampMs, Math.floorDiv(micros, MICROS_OF_MILLI) - 1);
      pushed.add(predicate);
    }
    return false;
  }

  private void narrow(long least, long after) {
    from = Math.max(from, least);
    until = Math.min(until, after);
  }

  @Override
  public String toString() {
    return pushed.toString();
  }
}
