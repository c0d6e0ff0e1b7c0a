package kafkalite.spark;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import kafkalite.spark.KafkaliteScan.Range;
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
  private static final Set<String> NEVER_NULL =
      Set.of("topic", "partition", "offset", "timestamp", "timestampType");
  private static final long MICROS_OF_MILLI = 1000;

  private final List<Predicate> pushed = new ArrayList<>();
  private final List<java.util.function.Predicate<Range>> keeps = new ArrayList<>();
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

  /** What the planner cuts by: offsets, and the first record at or after a time; -1 for any. */
  void cut(ObjectNode request) {
    request.putObject("cut").put("start", from).put("stop", until).put("timestamp", timestampMs);
  }

  /** Whether the partition of a range is one that the filters leave. */
  boolean keeps(Range range) {
    return keeps.stream().allMatch(keep -> keep.test(range));
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
    if (!Set.of("=", "<=>", "IN").contains(predicate.name())) {
      return false;
    }
    Set<String> names = values.stream().map(Object::toString).collect(Collectors.toSet());
    keeps.add(range -> names.contains(range.topic()));
    return pushed.add(predicate);
  }

  private boolean takesPartition(Predicate predicate, List<Object> values) {
    Set<Integer> numbers =
        values.stream().map(each -> ((Number) each).intValue()).collect(Collectors.toSet());
    int first = numbers.iterator().next();
    switch (predicate.name()) {
      case "=", "<=>", "IN" -> keeps.add(range -> numbers.contains(range.partition()));
      case "<>" -> keeps.add(range -> range.partition() != first);
      case "<" -> keeps.add(range -> range.partition() < first);
      case "<=" -> keeps.add(range -> range.partition() <= first);
      case ">" -> keeps.add(range -> range.partition() > first);
      case ">=" -> keeps.add(range -> range.partition() >= first);
      default -> {
        return false;
      }
    }
    return pushed.add(predicate);
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
