package kafkalite.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.NullNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.channels.ClosedByInterruptException;
import java.util.Base64;
import java.util.List;
import kafkalite.spark.KafkaliteScan.Range;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamReader;
import org.apache.arrow.vector.ipc.WriteChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads one range: an Arrow stream, batch by batch, its buffers as they came from the socket.
 *
 * <p>Topic and partition are the same in every row of a range. They are not sent; a query that
 * wants nothing else, as {@code count()} does, gets batches that have a length and no bytes.
 */
final class RangeReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOG = LoggerFactory.getLogger(RangeReader.class);

  private final Range range;
  private final StructType schema;
  private final BufferAllocator allocator;
  private Endpoint endpoint;
  private ArrowStreamReader reader;
  private VectorSchemaRoot root;
  private boolean skipsLosses;
  private boolean isRead;

  private RangeReader(Range range, StructType schema, String sentSchema) throws IOException {
    this.range = range;
    this.schema = schema;
    allocator = ArrowUtils.rootAllocator().newChildAllocator(range.toString(), 0, Long.MAX_VALUE);
    try {
      open(sentSchema);
    } catch (IOException | RuntimeException error) {
      close();
      throw failed(error);
    }
  }

  private void open(String sentSchema) throws IOException {
    ObjectNode request = (ObjectNode) Endpoint.JSON.readTree(range.read());
    skipsLosses = !request.path("fail.on.data.loss").asBoolean(true);
    request.put("op", "read").put("topic", range.topic()).put("partition", range.partition());
    request.put("start", range.start()).put("stop", range.stop()).put("schema", sentSchema);
    if (range.path() != null) {
      request.put("path", range.path());
    }
    if (!isNear() || !beginAtBroker(request.deepCopy())) {
      endpoint = Child.connection();
      begin(endpoint, request);
    }
  }

  /**
   * Whether a broker on this machine serves the range. What has failed once is read by the child:
   * it waits for a broker that is restarted, and asks again who leads the partition.
   */
  private boolean isNear() {
    return range.endpoint() != null
        && KafkaliteScan.thisHost().equals(range.host())
        && TaskContext.get().attemptNumber() == 0;
  }

  /**
   * Asks that broker, whose schema comes before any row; false if it is gone since the
   * range was planned, hangs, or refuses: no row has been handed on, and the child reads
   * all of them, or says why not.
   */
  private boolean beginAtBroker(ObjectNode request) throws IOException {
    long pollTimeoutMs = request.path("client").path("poll.timeout.ms").asLong();
    request.remove(List.of("bootstrap.servers", "client")); // a broker reads its own logs only
    try {
      endpoint = Endpoint.ofBroker(range.endpoint(), pollTimeoutMs);
      begin(endpoint, request);
      endpoint.limitSilence(pollTimeoutMs);
      return true;
    } catch (ClosedByInterruptException stopped) {
      throw stopped;
    } catch (IOException gone) {
      LOG.warn("{}: the broker is asked by Kafka's protocol", Endpoint.reason(gone));
      closeConnection();
      return false;
    }
  }

  private void begin(Endpoint asked, ObjectNode request) throws IOException {
    asked.send(request);
    reader = new ArrowStreamReader(asked, allocator);
    root = reader.getVectorSchemaRoot();
    if (!DataType.equalsIgnoreNullability(sent(schema), ArrowUtils.fromArrowSchema(root.getSchema()))) {
      throw new IOException("the Arrow endpoint has sent other columns than were asked for");
    }
    String losses = root.getSchema().getCustomMetadata().get(Endpoint.LOSSES);
    warn(losses == null ? NullNode.instance : Endpoint.JSON.readTree(losses));
  }

  @Override
  public boolean next() throws IOException {
    try {
      while (!isRead && reader.loadNextBatch()) {
        if (root.getRowCount() > 0) {
          return true;
        }
      }
      if (!isRead && skipsLosses) {
        askForLosses();
      }
    } catch (IOException | RuntimeException error) {
      throw failed(error);
    }
    isRead = true;
    return false;
  }

  /** All rows are here: that the endpoint cannot say what was skipped must not cost them. */
  private void askForLosses() throws ClosedByInterruptException {
    try {
      warn(endpoint.losses());
    } catch (ClosedByInterruptException stopped) {
      throw stopped;
    } catch (IOException untold) {
      LOG.warn("data may have been lost: the Arrow endpoint does not say what: {}", untold.getMessage());
    }
  }

  private static void warn(JsonNode losses) {
    losses.forEach(each -> LOG.warn("data may have been lost: {}", each.asText()));
  }

  @Override
  public ColumnarBatch get() {
    ColumnVector[] columns = new ColumnVector[schema.length()];
    int sent = 0;
    for (int index = 0; index < columns.length; index++) {
      ColumnVector constant = constant(schema.apply(index));
      columns[index] = constant != null ? constant : Column.of(root.getVector(sent++), root.getRowCount());
    }
    return new ColumnarBatch(columns, root.getRowCount());
  }

  private ColumnVector constant(StructField field) {
    if (!isConstant(field)) {
      return null;
    }
    ConstantColumnVector column = new ConstantColumnVector(root.getRowCount(), field.dataType());
    if (field.name().equals("topic")) {
      column.setUtf8String(UTF8String.fromString(range.topic()));
    } else {
      column.setInt(range.partition());
    }
    return column;
  }

  private static boolean isConstant(StructField field) {
    return field.name().equals("topic") && field.dataType().equals(DataTypes.StringType)
        || field.name().equals("partition") && field.dataType().equals(DataTypes.IntegerType);
  }

  @Override
  public void close() throws IOException {
    // The reader's buffers belong to the allocator, so that it goes last, whatever else fails.
    try (BufferAllocator last = allocator) {
      closeConnection();
    }
  }

  private void closeConnection() throws IOException {
    try (Endpoint connection = endpoint) {
      if (reader != null) {
        reader.close(false);
      }
    } finally {
      reader = null;
      endpoint = null;
    }
  }

  private IOException failed(Exception error) {
    String partition = range.topic() + "-" + range.partition();
    String sentence = Endpoint.reason(error);
    boolean isNamed = sentence.contains(partition);
    return new IOException(isNamed ? sentence : partition + ": " + sentence, error);
  }

  private static StructType sent(StructType schema) {
    StructType sent = new StructType();
    for (StructField field : schema.fields()) {
      sent = isConstant(field) ? sent : sent.add(field);
    }
    return sent;
  }

  /** The columns that are not constant: a schema message of Arrow IPC, in base64. */
  static String sentSchema(StructType schema) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (WriteChannel channel = new WriteChannel(Channels.newChannel(bytes))) {
      var arrow = ArrowUtils.toArrowSchema(sent(schema).asNullable(), "UTC", false);
      MessageSerializer.serialize(channel, arrow);
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
    return Base64.getEncoder().encodeToString(bytes.toByteArray());
  }

  /** Makes readers in the executors. */
  static final class Factory implements PartitionReaderFactory {
    private final StructType schema;
    private final String sentSchema;

    Factory(StructType schema, String sentSchema) {
      this.schema = schema;
      this.sentSchema = sentSchema;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
      return true;
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
      try {
        return new RangeReader((Range) partition, schema, sentSchema);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      throw new UnsupportedOperationException("ranges are read as columns");
    }
  }
}
