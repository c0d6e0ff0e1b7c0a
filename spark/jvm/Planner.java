package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Asks the driver's child for every decision about a query; kafkalite/spark/plan/answers.py has the
 * requests and what they are answered.
 */
final class Planner {
  private static final Logger LOG = LoggerFactory.getLogger(Planner.class);

  private Planner() {}

  /** A request: what is asked, and the options of the query as they were given. */
  static ObjectNode request(String op, CaseInsensitiveStringMap options) {
    ObjectNode request = Endpoint.JSON.createObjectNode().put("op", op);
    ObjectNode given = request.putObject("options");
    options.asCaseSensitiveMap().forEach(given::put);
    return request;
  }

  /** The answer. Throws {@code IllegalArgumentException} with the sentence of a refusal. */
  static JsonNode ask(ObjectNode request) {
    JsonNode answer;
    try (Endpoint child = Child.connection()) {
      child.send(request);
      answer = child.answer();
    } catch (IOException error) {
      throw new UncheckedIOException(error.getMessage(), error);
    }
    if (answer.has("error")) {
      throw new IllegalArgumentException(answer.get("error").asText());
    }
    answer.path("warnings").forEach(each -> LOG.warn(each.asText()));
    return answer;
  }
}
