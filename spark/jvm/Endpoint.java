package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ReadableByteChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
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
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A connection to an Arrow endpoint (docs/ARROW_ENDPOINT.md), and the child that serves one.
 *
 * <p>A JVM has at most one child, {@code python -m kafkalite arrow serve}: the driver plans through
 * it, and an executor reads from its own where no broker with an Arrow listener is on its machine.
 * It ends when its standard input is closed, so that it never outlives the JVM; one that has died
 * is replaced when it is next needed.
 */
final class Endpoint implements AutoCloseable, ReadableByteChannel {
  static final ObjectMapper JSON = new ObjectMapper();

  /** An op, and where the schema of a read says what the read skips: sentences. */
  static final String LOSSES = "losses";

  private static final Logger LOG = LoggerFactory.getLogger(Endpoint.class);
  private static final int ANSWER_BYTES_MAX = 64 << 20;
  /** In place of a length or a message: a sentence follows, and the connection ends. */
  private static final int FAILURE = -1;

  private static final String OTHER_PYTHON =
      "; set PYSPARK_PYTHON to the Python that has it, before the session is made";

  private static final int START_SECONDS_MAX = 60;
  private static final int CONNECT_MS_MAX = 10_000;

  private static final int SECRET_BYTES = 32;

  /** Where a child says that it listens. A user's Python may print other lines before that. */
  private static final Pattern READY =
      Pattern.compile("kafkalite arrow ready endpoint=(\\S+:\\d+) pid=");

  private final SocketChannel channel;
  private final Selector selector;
  private final String address;

  /** What each request must have, since other users of this machine reach the port; null of a broker. */
  private final String secret;

  /** How long nothing may come; 0 if the other side says itself that it waits for too long. */
  private final long silenceMsMax;

  /** Whether the bytes that come next are those of a message whose length has just been read. */
  private boolean afterLength;

  private Endpoint(String address, String secret, long silenceMsMax) throws IOException {
    this.address = address;
    this.secret = secret;
    this.silenceMsMax = silenceMsMax;
    channel = SocketChannel.open();
    Selector opened = null;
    try {
      opened = Selector.open();
      int colon = address.lastIndexOf(':');
      String host = address.substring(0, colon);
      int port = Integer.parseInt(address.substring(colon + 1));
      channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
      channel.socket().connect(new InetSocketAddress(host, port), CONNECT_MS_MAX);
      channel.configureBlocking(false).register(opened, 0);
      selector = opened;
    } catch (ClosedByInterruptException stopped) {
      // As it is, since Spark tells by it a query that was stopped from one that has failed.
      close(channel, opened);
      throw stopped;
    } catch (IOException | RuntimeException error) {
      close(channel, opened);
      throw new IOException("the Arrow endpoint " + address + " does not answer: " + reason(error));
    }
  }

  /** A request to plan: what is asked, and the options of the query as they were given. */
  static ObjectNode request(String op, CaseInsensitiveStringMap options) {
    ObjectNode request = JSON.createObjectNode().put("op", op);
    ObjectNode given = request.putObject("options");
    options.asCaseSensitiveMap().forEach(given::put);
    return request;
  }

  /** What the child answers. Throws {@code IllegalArgumentException} with the sentence of a refusal. */
  static JsonNode plan(ObjectNode request) {
    JsonNode answer;
    try {
      answer = ask(request);
    } catch (IOException error) {
      throw new UncheckedIOException(error.getMessage(), error);
    }
    if (answer.has("error")) {
      throw new IllegalArgumentException(answer.get("error").asText());
    }
    answer.path("warnings").forEach(each -> LOG.warn(each.asText()));
    return answer;
  }

  private static JsonNode ask(ObjectNode request) throws IOException {
    try (Endpoint child = ofChild()) {
      child.send(request);
      return child.answer();
    }
  }

  /**
   * A connection to a broker's endpoint at this address, which fails if nothing comes for so long:
   * a broker that hangs would hold its task, and the query, for ever.
   */
  static Endpoint at(String address, long silenceMsMax) throws IOException {
    return new Endpoint(address, null, silenceMsMax);
  }

  /** A connection to this JVM's child, which is started if there is none. */
  static Endpoint ofChild() throws IOException {
    Child child = Child.running();
    try {
      return child.connected();
    } catch (IOException error) {
      if (child.isAlive()) {
        throw error;
      }
      return Child.running().connected();
    }
  }

  void send(ObjectNode request) throws IOException {
    if (secret != null) {
      request.put("secret", secret);
    }
    byte[] bytes = JSON.writeValueAsBytes(request);
    ByteBuffer frame = ByteBuffer.allocate(Integer.BYTES + bytes.length);
    frame.putInt(bytes.length).put(bytes).flip();
    while (frame.hasRemaining()) {
      if (channel.write(frame) == 0) {
        await(SelectionKey.OP_WRITE);
      }
    }
  }

  /** Like a blocking read of the channel, but for the limit. */
  private int receive(ByteBuffer into) throws IOException {
    int read = channel.read(into);
    while (read == 0 && into.hasRemaining()) {
      await(SelectionKey.OP_READ);
      read = channel.read(into);
    }
    return read;
  }

  /** Waits until the channel is ready, or throws. A thread that is interrupted does not wait. */
  private void await(int operation) throws IOException {
    channel.keyFor(selector).interestOps(operation);
    int ready = selector.select(silenceMsMax);
    selector.selectedKeys().clear();
    if (ready == 0 && silenceMsMax > 0 && !Thread.currentThread().isInterrupted()) {
      throw new IOException("the Arrow endpoint " + address + " sent nothing for " + silenceMsMax
          + " ms (kafkaConsumer.pollTimeoutMs)");
    }
  }

  /** What the read that is over has skipped, as far as its schema did not say it. */
  JsonNode losses() throws IOException {
    send(JSON.createObjectNode().put("op", LOSSES));
    return answer().path(LOSSES);
  }

  private JsonNode answer() throws IOException {
    int length = take(Integer.BYTES).getInt();
    if (length == FAILURE) {
      int bytes = take(Integer.BYTES).order(ByteOrder.LITTLE_ENDIAN).getInt() - 1;
      throw new IOException(text(take(Math.min(Math.max(bytes, 0), ANSWER_BYTES_MAX))));
    }
    if (length < 0 || length > ANSWER_BYTES_MAX) {
      throw new IOException("the Arrow endpoint " + address + " answered with " + length + " bytes");
    }
    return JSON.readTree(take(length).array());
  }

  private ByteBuffer take(int length) throws IOException {
    ByteBuffer bytes = ByteBuffer.allocate(length);
    while (bytes.hasRemaining()) {
      if (receive(bytes) < 0) {
        throw new EOFException("the Arrow endpoint " + address + " ended in mid-answer");
      }
    }
    return bytes.flip();
  }

  /**
   * Reads bytes of an Arrow stream; never answers -1. A stream has a mark at its end and nobody
   * reads beyond it, so that bytes which do not come are a failure: a sentence of the server, in
   * place of a message and one byte shorter than announced, or a server that is gone. (To Arrow's
   * reader a connection that closes between two messages is the end of the rows.)
   */
  @Override
  public int read(ByteBuffer into) throws IOException {
    int read = receive(into);
    if (read < 0) {
      if (afterLength && into.position() > 0 && into.remaining() == 1) {
        throw new IOException(text(into.duplicate().flip()));
      }
      throw new EOFException("the Arrow endpoint " + address + " closed the connection too early");
    }
    if (!into.hasRemaining()) {
      afterLength = into.capacity() == Integer.BYTES;
    }
    return read;
  }

  @Override
  public boolean isOpen() {
    return channel.isOpen();
  }

  @Override
  public void close() throws IOException {
    close(channel, selector);
  }

  /** The selector as well: a channel keeps its descriptor until that has let go of it. */
  private static void close(SocketChannel channel, Selector selector) throws IOException {
    try (SocketChannel last = channel; Selector first = selector) {}
  }

  private static String text(ByteBuffer bytes) {
    return StandardCharsets.UTF_8.decode(bytes).toString();
  }

  /** The message; an interrupted channel's exception has none, and is called by its name. */
  static String reason(Exception error) {
    return error.getMessage() == null ? error.getClass().getSimpleName() : error.getMessage();
  }

  /** The process, where it listens, and what it wants to hear with each request. */
  private record Child(Process process, String listens, String secret) {
    private static Child current;

    Endpoint connected() throws IOException {
      return new Endpoint(listens, secret, 0);
    }

    static synchronized Child running() throws IOException {
      if (current == null || !current.process.isAlive()) {
        current = start();
      }
      return current;
    }

    /** Of a child that does not answer; one that was just killed is given time to be gone. */
    boolean isAlive() {
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
}
