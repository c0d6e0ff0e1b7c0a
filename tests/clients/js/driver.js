// kafkajs behind a line protocol: one JSON object a line over the connection to 127.0.0.1:<port>,
// whose answer carries its id. drivers.py is the other end and documents the operations.
"use strict";

const net = require("net");
const { Kafka, CompressionCodecs, CompressionTypes, Partitioners, logLevel } = require("kafkajs");
const lz4 = require("lz4-napi");
const snappy = require("kafkajs-snappy");
const zstd = require("@bokuweb/zstd-wasm");

// kafkajs brings gzip; the others are its documented plug-ins.
CompressionCodecs[CompressionTypes.Snappy] = snappy;
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: (buffer) => lz4.decompressFrame(buffer),
});
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
});

const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (buffer) => (buffer === null || buffer === undefined ? null : buffer.toString("base64"));

function kafka(request) {
  return new Kafka({
    brokers: [request.servers],
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 60 },
  });
}

// Headers are an object in kafkajs; a name that is repeated holds a list.
function headersIn(pairs) {
  const headers = {};
  for (const [name, value] of pairs) {
    if (name in headers) headers[name] = [].concat(headers[name], [bytes(value)]);
    else headers[name] = bytes(value);
  }
  return headers;
}

const headersOut = (headers) =>
  Object.entries(headers || {}).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((each) => [name, text(each)]));

async function makeProducer(request) {
  const producer = kafka(request).producer({
    createPartitioner: Partitioners.DefaultPartitioner,
    idempotent: request.idempotent || request.transactional_id !== null,
    ...(request.transactional_id !== null && {
      transactionalId: request.transactional_id,
      transactionTimeout: request.transaction_timeout_ms,
      maxInFlightRequests: 1, // as kafkajs asks of a producer with transactions
    }),
  });
  await producer.connect();
  let transaction = null;
  return {
    begin: async () => { transaction = await producer.transaction(); },
    offsets: ({ offsets, group }) => transaction.sendOffsets({
      consumerGroupId: group,
      topics: offsets.map(([topic, partition, offset]) => (
        { topic, partitions: [{ partition, offset: String(offset) }] })),
    }),
    commit: () => transaction.commit(),
    abort: () => transaction.abort(),
    send: async ({ records }) => {
      const byTopic = new Map();
      for (const record of records) {
        const message = { key: bytes(record.key), value: bytes(record.value) };
        if (record.partition !== null) message.partition = record.partition;
        if (record.timestamp !== null) message.timestamp = String(record.timestamp);
        if (record.headers.length > 0) message.headers = headersIn(record.headers);
        if (!byTopic.has(record.topic)) byTopic.set(record.topic, []);
        byTopic.get(record.topic).push(message);
      }
      const topicMessages = [...byTopic].map(([topic, messages]) => ({ topic, messages }));
      await (transaction || producer).sendBatch({ acks: -1, compression: codecs[request.codec], topicMessages });
    },
    close: () => producer.disconnect(),
  };
}

async function makeConsumer(request) {
  const consumer = kafka(request).consumer({
    groupId: request.group,
    heartbeatInterval: request.heartbeat_ms,
    sessionTimeout: request.session_ms,
    maxWaitTimeInMs: 100,
    readUncommitted: !request.committed_only,
  });
  const waiting = []; // records that no poll has taken yet
  let share = {};
  let arrived = () => {};
  consumer.on(consumer.events.GROUP_JOIN, (event) => (share = event.payload.memberAssignment));
  consumer.on(consumer.events.REBALANCING, () => (share = {}));
  await consumer.connect();
  const topics = request.pattern ? [new RegExp(request.pattern)] : request.topics;
  await consumer.subscribe({ topics, fromBeginning: true });
  await consumer.run({
    autoCommit: request.auto_commit,
    autoCommitInterval: request.auto_commit_ms,
    eachMessage: async ({ topic, partition, message }) => {
      waiting.push({
        topic,
        partition,
        key: text(message.key),
        value: text(message.value),
        timestamp: Number(message.timestamp),
        headers: headersOut(message.headers),
        offset: Number(message.offset),
      });
      arrived();
    },
  });
  return {
    poll: async ({ timeout_ms: timeoutMs }) => {
      if (waiting.length === 0) {
        await new Promise((resolve) => {
          const timer = setTimeout(resolve, timeoutMs);
          arrived = () => { clearTimeout(timer); resolve(); };
        });
      }
      return { records: waiting.splice(0) };
    },
    assignment: async () => ({
      partitions: Object.entries(share).flatMap(([topic, indexes]) =>
        indexes.map((index) => [topic, index])),
    }),
    seek: async ({ topic, partition, offset }) => {
      waiting.length = 0;
      consumer.seek({ topic, partition, offset: String(offset) });
    },
    commit: ({ offsets }) => consumer.commitOffsets(
      offsets.map(([topic, partition, offset]) => ({ topic, partition, offset: String(offset) }))),
    group: async () => ({ group: request.group }),
    close: () => consumer.disconnect(),
  };
}

const makers = { producer: makeProducer, consumer: makeConsumer };
const objects = new Map();

async function handle(request) {
  if (!(request.op in makers)) return objects.get(request.name)[request.op](request);
  objects.set(request.name, await makers[request.op](request));
  return {};
}

zstd.init().then(() => {
  const connection = net.connect(Number(process.argv[2]), "127.0.0.1");
  let parts = []; // of a line that has not ended
  connection.on("data", (data) => {
    for (let end; (end = data.indexOf(10)) >= 0; data = data.subarray(end + 1)) {
      const request = JSON.parse(Buffer.concat([...parts, data.subarray(0, end)]));
      parts = [];
      handle(request)
        .catch((error) => ({ error: String(error) }))
        .then((answer) => connection.write(JSON.stringify({ id: request.id, ...answer }) + "\n"));
    }
    parts.push(data);
  });
  connection.on("close", () => process.exit(0)); // the tests are over
});
