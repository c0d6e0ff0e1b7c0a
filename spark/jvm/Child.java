package kafkalite.spark;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The child process that serves an Arrow endpoint to its JVM, {@code python -m kafkalite arrow
 * serve}.
 *
 * <p>A JVM has at most one: the driver plans through it, and an executor reads from its own where
 * no broker with an Arrow listener is on its machine. It ends when its standard input is closed, so
 * that it never outlives the JVM; one that has died is replaced when it is next needed.
 *
 * @param listens host and port
 * @param secret what it wants to hear with each request
 */
record Child(Process process, String listens, String secret) {
  private static final Logger LOG = LoggerFactory.getLogger(Child.class);

  private static final String OTHER_PYTHON =
      "; set PYSPARK_PYTHON to the Python that has it, before the session is made";

  private static final int START_SECONDS_MAX = 60;
  private static final int SECRET_BYTES = 32;

  /** Where a child says that it listens. A user's Python may print other lines before that. */
  private static final Pattern READY =
      Pattern.compile("kafkalite arrow ready endpoint=(\\S+:\\d+) pid=");

  private static Child current;

  /** A connection to this JVM's child, which is started if there is none. */
  static Endpoint connection() throws IOException {
    Child child = running();
    try {
      return child.connect();
    } catch (IOException error) {
      if (child.isAlive()) {
        throw error;
      }
      return running().connect();
    }
  }

  private Endpoint connect() throws IOException {
    return Endpoint.ofChild(listens, secret);
  }

  private static synchronized Child running() throws IOException {
    if (current == null || !current.process.isAlive()) {
      current = start();
    }
    return current;
  }

  /** Of a child that does not answer; one that was just killed is given time to be gone. */
  private boolean isAlive() {
    try {
      return !process.waitFor(1, TimeUnit.SECONDS);
    } catch (InterruptedException killed) {
      Thread.currentThread().interrupt();
      return true;
    }
  }

  private static Child start() throws IOException {
    List<String> command =
        List.of(python(), "-m", "kafkalite", "arrow", "serve", "--listen", "127.0.0.1:0",
            "--exit-with-stdin");
    Process process = new ProcessBuilder(command).start();
    CompletableFuture<String> ready = new CompletableFuture<>();
    String[] last = {""};
    String secret = newSecret();
    follow("errors", process.getErrorStream(), line -> {
      last[0] = line;
      LOG.warn("kafkalite arrow serve: {}", line);
    }, () -> {});
    follow("output", process.getInputStream(), line -> {
      Matcher told = READY.matcher(line);
      if (told.find()) {
        LOG.info("{} (process {})", line, process.pid());
        ready.complete(told.group(1));
      }
    }, () -> ready.complete(""));
    tell(process, secret);
    try {
      String listens = ready.get(START_SECONDS_MAX, TimeUnit.SECONDS);
      if (!listens.isEmpty()) {
        return new Child(process, listens, secret);
      }
      process.waitFor(1, TimeUnit.SECONDS);
      String way = last[0].endsWith("No module named kafkalite") ? OTHER_PYTHON : "";
      throw new IOException("'" + String.join(" ", command) + "' ended at once: " + last[0] + way);
    } catch (InterruptedException killed) {
      Thread.currentThread().interrupt();
      process.destroyForcibly();
      throw new InterruptedIOException("the task was killed before its child was ready");
    } catch (ExecutionException | TimeoutException error) {
      process.destroyForcibly();
      throw new IOException("'" + String.join(" ", command) + "' did not become ready", error);
    }
  }

  private static String newSecret() {
    byte[] bytes = new byte[SECRET_BYTES];
    new SecureRandom().nextBytes(bytes);
    return HexFormat.of().formatHex(bytes);
  }

  /** By the standard input, which stays open: nobody else sees it. */
  private static void tell(Process process, String secret) {
    try {
      OutputStream input = process.getOutputStream();
      input.write((secret + "\n").getBytes(StandardCharsets.UTF_8));
      input.flush();
    } catch (IOException gone) {
      LOG.debug("the child ended at once", gone); // which is told by what it says last
    }
  }

  /** Hands on each line of a stream of the child, so that it never waits for a reader. */
  private static void follow(
      String what, InputStream stream, Consumer<String> line, Runnable end) {
    Thread thread =
        new Thread(() -> {
          try (BufferedReader lines = new BufferedReader(
              new InputStreamReader(stream, StandardCharsets.UTF_8))) {
            lines.lines().forEach(line);
          } catch (IOException | UncheckedIOException gone) {
            LOG.debug("the child's {} ended", what, gone);
          } finally {
            end.run();
          }
        }, "kafkalite-child-" + what);
    thread.setDaemon(true);
    thread.start();
  }

  /** The Python of Spark's workers, which has kafkalite installed. */
  private static String python() {
    SparkConf conf = SparkEnv.get().conf();
    Map<String, String> environment = System.getenv();
    String fallback = environment.getOrDefault("PYSPARK_PYTHON", "python3");
    return conf.get("spark.pyspark.python", conf.get("spark.pyspark.driver.python", fallback));
  }
}
