package kafkalite.spark;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.BaseFixedWidthVector;
import org.apache.arrow.vector.BaseVariableWidthVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.complex.ListVector;
import org.apache.arrow.vector.complex.StructVector;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * One column of one batch, read out of Arrow's buffers by their addresses.
 *
 * <p>Arrow and Spark's own vector look at each value whether the buffer is still there, whether the
 * row is in it and whether it is null: a third of what a query costs. Here the bounds are checked
 * once a batch, and what is null where there are nulls. {@code RangeReader} has made sure that the
 * types are those which Spark will ask for. Types that are rarer, or do not lie in one buffer, are
 * left to Spark's.
 *
 * <p>It stays the reader's: Spark closes what it has done with, and a closed struct has lost its
 * fields when the next batch is to go into it. A column must not be read after the next batch has
 * been loaded.
 */
final class Column extends ArrowColumnVector {
  /** Addresses of the buffers; 0 where there is none, and for validity where nothing is null. */
  private final long validity;

  private final long offsets;
  private final long data;
  private final Column[] fields;

  /** Of a vector that the other end of a socket has sent: that it has so many rows is looked at. */
  static Column of(FieldVector vector, int rows) {
    check(vector, rows);
    return new Column(vector, rows);
  }

  private Column(FieldVector vector, int rows) {
    super(vector);
    validity = vector.getNullCount() == 0 ? 0 : vector.getValidityBuffer().memoryAddress();
    boolean isVariable = vector instanceof BaseVariableWidthVector && rows > 0;
    offsets = isVariable ? vector.getOffsetBuffer().memoryAddress() : 0;
    data = isVariable || vector instanceof BaseFixedWidthVector ? vector.getDataBuffer().memoryAddress() : 0;
    fields = new Column[vector instanceof StructVector struct ? struct.size() : 0];
    for (int index = 0; index < fields.length; index++) {
      fields[index] = new Column((FieldVector) ((StructVector) vector).getVectorById(index), rows);
    }
  }

  /**
   * Refuses a vector of which some value lies outside of its buffers. With Arrow's own checks off
   * (docs/SPARK.md) Spark's vector would read there, too.
   */
  private static void check(FieldVector vector, int rows) {
    if (rows > vector.getValueCount()) {
      throw new IllegalStateException(
          "a column has " + vector.getValueCount() + " rows where " + rows + " are due");
    }
    address(vector.getValidityBuffer(), bits(vector.getValueCount()));
    if (vector instanceof BaseVariableWidthVector && rows > 0) {
      address(vector.getDataBuffer(), end(vector.getOffsetBuffer(), rows));
    } else if (vector instanceof BitVector) {
      address(vector.getDataBuffer(), bits(rows));
    } else if (vector instanceof BaseFixedWidthVector fixed) {
      address(vector.getDataBuffer(), (long) fixed.getTypeWidth() * rows);
    } else if (vector instanceof StructVector) {
      vector.getChildrenFromFields().forEach(field -> check(field, rows));
    } else if (vector instanceof ListVector list) {
      check(list.getDataVector(), rows > 0 ? end(list.getOffsetBuffer(), rows) : 0);
    }
  }

  private static long bits(int rows) {
    return (rows + 7L) / 8;
  }

  /**
   * Where the last of so many values ends. The values lie one behind the other, or one of
   * them would be read from memory that is not the column's: offsets are what the other
   * end of a socket has sent.
   */
  private static int end(ArrowBuf buffer, int rows) {
    long offsets = address(buffer, Integer.BYTES * (rows + 1L));
    int start = Platform.getInt(null, offsets);
    int descents = start; // its sign is set where one of these is negative
    for (int row = 1; row <= rows; row++) {
      int end = Platform.getInt(null, offsets + (long) Integer.BYTES * row);
      descents |= end | (end - start);
      start = end;
    }
    if (descents < 0) {
      throw new IllegalStateException("a column has offsets that do not ascend");
    }
    return start;
  }

  private static long address(ArrowBuf buffer, long bytes) {
    if (bytes < 0 || bytes > buffer.capacity()) {
      throw new IllegalStateException(
          "a column has a buffer of " + buffer.capacity() + " bytes where " + bytes + " are due");
    }
    return buffer.memoryAddress();
  }

  @Override
  public boolean isNullAt(int row) {
    return validity != 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0;
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, data + (long) Integer.BYTES * row);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, data + (long) Long.BYTES * row);
  }

  @Override
  public float getFloat(int row) {
    return Platform.getFloat(null, data + (long) Float.BYTES * row);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, data + (long) Double.BYTES * row);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = start(row);
    return UTF8String.fromAddress(null, data + start, start(row + 1) - start);
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = start(row);
    byte[] bytes = new byte[start(row + 1) - start];
    Platform.copyMemory(null, data + start, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  private int start(int row) {
    return Platform.getInt(null, offsets + (long) Integer.BYTES * row);
  }

  @Override
  public ArrowColumnVector getChild(int index) {
    return fields[index];
  }

  @Override
  public void closeIfFreeable() {}
}
