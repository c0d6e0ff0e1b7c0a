package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.EOFException;
import java.io.IOException;
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

/** A connection to an Arrow endpoint (docs/ARROW_ENDPOINT.md): a broker's, or a child's. */
final class Endpoint implements AutoCloseable, ReadableByteChannel {
  static final ObjectMapper JSON = new ObjectMapper();

  /** An op, and where the schema of a read says what the read skips: sentences. */
  static final String LOSSES = "losses";

  private static final int ANSWER_BYTES_MAX = 64 << 20;

  /** A child takes a longer request only on a connection that has shown it the secret. */
  private static final int STRANGERS_REQUEST_BYTES_MAX = 1 << 20;

  /** In place of a length or a message: a sentence follows, and the connection ends. */
  private static final int FAILURE = -1;

  private static final int CONNECT_MS_MAX = 10_000;

  /** Within which a broker has begun to answer: after 30 s it says that it has no memory for it. */
  private static final int BEGIN_MS_MAX = 40_000;

  private final SocketChannel channel;
  private final Selector selector;
  private final String address;

  /** What each request must have, since other users of this machine reach the port; null of a broker. */
  private final String secret;

  /** How long nothing may come; 0 for any time. */
  private long silenceMsMax;
  private String silenceOption = "";

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

  /** A connection to a broker's endpoint at this address, which fails if it does not answer soon. */
  static Endpoint ofBroker(String address, long pollTimeoutMs) throws IOException {
    return new Endpoint(address, null, Math.min(pollTimeoutMs, BEGIN_MS_MAX));
  }

  /** A connection to a child, which says itself that it waits for too long. */
  static Endpoint ofChild(String address, String secret) throws IOException {
    return new Endpoint(address, secret, 0);
  }

  /**
   * From now on it fails if nothing comes for so long: a broker that hangs would hold its task, and
   * the query, for ever.
   */
  void limitSilence(long pollTimeoutMs) {
    silenceMsMax = pollTimeoutMs;
    silenceOption = " (kafkaConsumer.pollTimeoutMs)";
  }

  void send(ObjectNode request) throws IOException {
    if (secret != null) {
      request.put("secret", secret);
    }
    byte[] bytes = JSON.writeValueAsBytes(request);
    if (secret != null && bytes.length > STRANGERS_REQUEST_BYTES_MAX) {
      losses();
    }
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
          + " ms" + silenceOption);
    }
  }

  /** What the read that is over has skipped, as far as its schema did not say it. */
  JsonNode losses() throws IOException {
    send(JSON.createObjectNode().put("op", LOSSES));
    return answer().path(LOSSES);
  }

  /** An answer that is JSON. */
  JsonNode answer() throws IOException {
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
}
