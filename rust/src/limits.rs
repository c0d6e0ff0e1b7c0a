//! Every bound of the engine in one place, with its unit and what happens at the bound.

use std::time::Duration;

/// A record batch in any format is refused as corrupt when its length field says more, bytes.
/// Kafka has no such bound below the 2 GiB of its `int`; sizes are checked before anything is
/// allocated for them.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Bytes that a batch of a producer may inflate to; beyond it the batch is refused as invalid. It
/// bounds the time that goes into a request, and the memory of readers that inflate a batch
/// as a whole, as clients do. The cleaner may have to write such a batch again with longer time
/// deltas, and it must still be one: what is in a log may inflate to [`BATCH_BYTES_MAX`].
pub const INFLATED_BYTES_MAX: usize = 256 << 20;

/// Ratio of inflated to compressed bytes above which a batch is called a bomb.
pub const INFLATION_RATIO_MAX: usize = 4096;

/// Partitions of one append that may inflate an `INFLATE_WINDOW_BYTES` each, beyond what all of
/// them may.
pub const APPEND_WINDOWS_BESIDE: usize = 16;

/// Inflated bytes up to which nobody asks for the ratio.
pub const INFLATION_RATIO_FREE_BYTES: usize = 16 << 20;

/// Inflated records that validation, look-up by time and the cleaner hold at a time, bytes,
/// beside a piece of the stream and a record that is larger; a batch that is built again is
/// compressed in parts of so many.
pub const INFLATE_WINDOW_BYTES: usize = 4 << 20;

/// Scratch memory that a reader or validator keeps from one batch to the next, bytes; what a large
/// batch needed beyond it is given back.
pub const SCRATCH_BYTES_KEPT_MAX: usize = 4 << 20;

/// Validators whose scratch memory is kept while they have nothing to do; it is that of all logs.
pub const SCRATCHES_KEPT_MAX: usize = 4;

/// Records of refused batches that are named one by one in answers, for all batches of one call of
/// `append` together; the others are only counted. A batch of a hundred bytes may hold so many.
pub const RECORD_ERRORS_MAX: usize = 1000;

/// Bytes read from a segment at once while its batches are scanned (recovery, look-up).
pub const SCAN_CHUNK_BYTES: usize = 256 * 1024;

/// Bytes that are copied at once of a segment that is cut while others read it.
pub const COPY_BYTES: u64 = 1 << 20;

/// Bytes that the cleaner collects of a segment before it writes.
pub const CLEANER_WRITE_BYTES: usize = 1 << 20;

/// A log that could not be compacted is tried again after so long, milliseconds: a damaged one is
/// read up to its damage each time.
pub const COMPACTION_RETRY_MS: i64 = 600_000;

/// Bytes read at once while a look-up walks headers behind an index entry; more are read in turn.
pub const LOOK_UP_BYTES_MAX: u64 = 16 * 1024;

/// In a closed segment, bytes behind the last entry of its time index whose headers prove, at its
/// first use, that no batch is later; beyond, the last batch alone is asked, and by whoever deletes
/// the segment for its age every batch.
pub const TIMESTAMP_PROOF_BYTES_MAX: u64 = 1 << 20;

/// Batches that the idempotence window remembers for a producer (`ProducerStateEntry`).
pub const PRODUCER_BATCHES_MAX: usize = 5;

/// Default of `kafkalite.open.segments.max`: descriptors (and maps) held for segments.
pub const OPEN_SEGMENTS_MAX: usize = 1024;

/// Descriptors that a process is to have beside those of segments, for connections. Where the
/// system allows fewer, segments get at most half of all; connections beyond what is left wait.
pub const DESCRIPTORS_RESERVED: u64 = 16_384;

/// Descriptors of a process that are neither for segments nor for connections, at most:
/// files that are open for the length of a call. Half of it where few are left.
pub const DESCRIPTORS_SPARE: u64 = 128;

/// The part of the descriptors left by open segments that is for further segments, which answers
/// hold open that wait for their readers. Beyond, the records of an answer are copied into memory,
/// and count there.
pub const HELD_DESCRIPTORS_DIVISOR: u64 = 8;

/// Metadata for whose file there is no descriptor is tried again after this.
pub const DESCRIPTORS_RETRY: Duration = Duration::from_millis(100);

/// Logs that wait for a flush, from which on one `syncfs` replaces a `fdatasync` each.
pub const SYNC_FILE_SYSTEM_LOGS_MIN: usize = 10;

/// A `syncfs` that took longer than the files one by one would have is not tried again for so many
/// times its length: somebody else is writing much on that file system.
pub const SYNC_FILE_SYSTEM_REST: u32 = 50;

/// Logs of a new topic that are made at the same time, a thread each: their fsyncs share
/// commits of the file system.
pub const CREATING_THREADS: usize = 8;

/// Directories of deleted logs that the housekeeper removes before it looks at what else is due,
/// and whether it is to stop.
pub const DIRECTORIES_PER_TICK: usize = 16;

/// Appends written by one `pwritev`; more are split. Linux allows 1,024 vectors a call.
pub const APPEND_VECTORS_MAX: usize = 1024;

/// Findings that `kafkalite log verify` prints of one file; those beyond are counted.
pub const FINDINGS_PER_FILE_MAX: usize = 20;

/// The receive buffers that network threads share among their connections, bytes each: what one
/// `recv` takes at most. A frame that is larger gets a buffer of its own, as it arrives.
pub const RECEIVE_BYTES: usize = 128 * 1024;

/// Connections taken from a listener before it is the turn of those that there are.
pub const ACCEPTS_PER_TURN: usize = 64;

/// Calls of `recv` for one connection before the next connection's turn.
pub const RECEIVES_PER_TURN: usize = 4;

/// A frame of which so much has come, bytes, gets the address space for all of it, so that it is
/// not copied while it grows; and so much of that is made ready at once.
pub const RECEIVE_RESERVED_BYTES: usize = 1024 * 1024;
pub const RECEIVE_GROWTH_MAX: usize = 4 * 1024 * 1024;

/// Receive buffers that a network thread keeps; with so many full of records to be appended, it
/// appends them even in mid-round.
pub const RECEIVE_BUFFERS_KEPT: usize = 32;

/// Bytes that a network thread holds for appending before it writes them, even in mid-round.
pub const STAGED_BYTES_MAX: usize = 1024 * 1024;

/// Larger buffers that a network thread keeps for frames that do not fit into a receive buffer,
/// bytes in all; beyond it they are given back.
pub const LARGE_BUFFERS_KEPT_BYTES: usize = 8 * 1024 * 1024;

/// A frame gets one of these once it is no longer than so many times what has come of it: a mere
/// claim takes no memory from others.
pub const LARGE_BUFFER_RATIO: usize = 16;

/// Bounds of what requests may take in memory while they arrive or wait, all connections together,
/// where `queued.max.request.bytes` does not say; between them it is a quarter of the memory,
/// bytes. Beyond it no more than `MEMORY_FREE_BYTES` of a new frame are received.
pub const RECEIVE_BUDGET_MIN: u64 = 64 * 1024 * 1024;
pub const RECEIVE_BUDGET_MAX: u64 = 2 * 1024 * 1024 * 1024;

/// Bytes of a frame, of answers, or of requests that wait, that a connection may hold
/// without their being counted.
pub const MEMORY_FREE_BYTES: usize = 8 * 1024;

/// Bytes that a request takes in memory while Python has it beside its body, and how often
/// its body is there: as it came, and what was made of it. Lists of partitions of an
/// OffsetFetch become more.
pub const CONTROL_REQUEST_BYTES: usize = 3 * 1024;
pub const CONTROL_BODY_COPIES: usize = 2;
pub const CONTROL_LIST_COPIES: usize = 12;

/// Elements of all arrays of a request that Python answers; the connection of a larger one is
/// closed. Each becomes an object, and some microseconds of the one thread that answers groups.
pub const REQUEST_ELEMENTS_MAX: usize = 100_000;

/// A request of Python's with more elements, or a larger body (`LARGE_REQUEST_BYTES`), is decoded
/// by a thread beside the control thread, one at a time; and so is an answer encoded of more
/// values, or of more memory.
pub const REQUEST_ELEMENTS_AT_ONCE: usize = 1_000;
pub const ANSWER_VALUES_AT_ONCE: usize = 20_000;
pub const ANSWER_BYTES_AT_ONCE: usize = 2 << 20;

/// Elements or values of Python's that are decoded or encoded before the GIL is offered to others;
/// some hundred microseconds.
pub const GIL_STEP_VALUES: usize = 1_000;

/// Bytes that are encoded of a large answer until the memory of the elements that they were
/// goes back to the system.
pub const GIVEN_BACK_BYTES: usize = 16 << 20;

/// Bytes that an element of such a request takes in memory at most, decoded and
/// answered, beside what is in it.
pub const ELEMENT_BYTES: usize = 512;

/// So many answers of Python's wait at most for the next ones that are due in the same moment.
pub const ANSWERS_GATHERED_MAX: usize = 16;

/// Where Python has not come for requests for so long, those that come from half of the memory on
/// are not begun before it does.
pub const CONTROL_PROMPT: Duration = Duration::from_secs(1);

/// When memory is short, a connection that holds some is closed whose client has sent nothing of a
/// frame, or read nothing of its answers, for so long, milliseconds.
pub const SLOW_FRAME_MS: u64 = 10_000;

/// And one whose client has taken so long, milliseconds, for less than so many bytes of them: a
/// kilobyte a second is less than any link gives on which Kafka is spoken.
pub const SLOW_CLIENT_MS: u64 = 60_000;
pub const SLOW_CLIENT_BYTES: u64 = 64 * 1024;

/// While others wait for memory, a client that holds some has so long, milliseconds, to send the
/// rest of its frame, or to read its answers. Then the slowest goes first; early enough for those
/// who wait, whose requests have `FRAME_WAIT_MS`.
pub const CLIENT_DUTY_MS: u64 = 20_000;

/// One that has waited so long, milliseconds, for memory for the rest of its frame goes too, if
/// those who are slow were not enough: `request.timeout.ms` of Kafka's clients is over, and others
/// want what it holds.
pub const FRAME_WAIT_MS: u64 = 30_000;

/// Work that a connection may have begun in one round before it is the next connection's turn, and
/// what a Produce request and any other one count.
pub const WORK_PER_TURN: u32 = 1024;
pub const WORK_OF_PRODUCE: u32 = 1;
pub const WORK_OF_OTHERS: u32 = 16;

/// A request whose frame is larger, bytes, is read by a thread beside the network threads, one at a
/// time. A Produce request is only if it names more than so many topics and partitions.
pub const LARGE_REQUEST_BYTES: usize = 64 * 1024;
pub const LARGE_REQUEST_NAMES: usize = 2048;

/// Bytes of a request that is not Produce which count as one more piece of work (`WORK_PER_TURN`).
pub const BYTES_PER_WORK: usize = 64;

/// Partitions of a Produce request that count as one more.
pub const PARTITIONS_PER_WORK: u32 = 8;

/// How often a large request's frame may be in memory while it is read: as it
/// came, and what is made of it.
pub const LARGE_REQUEST_COPIES: usize = 3;

/// Bytes that are made at once of an answer that is made as it is sent; and what of it counts as so
/// many times its bytes in `SEND_BYTES_PER_TURN`.
pub const SLICE_BYTES: usize = 64 * 1024;
pub const SLICE_COST: usize = 8;

/// The table in which repetitions in a large request are looked for takes so many bytes
/// and as many as its frame.
pub const REPETITIONS_BYTES_FREE: usize = 32 * 1024 * 1024;

/// Batches that one Produce request may bring. One with more names partitions again and again, or a
/// broker has more partitions than any; it is refused, which ends its connection.
pub const PRODUCED_BATCHES_MAX: usize = 16_384;

/// Bytes that are inflated for one append of a network thread, some tenths of a second where all
/// that they hold is tiny. Batches for which they are not enough are judged and appended by a
/// thread of their own, so many bytes and one batch at a time; what their producers send later
/// waits behind them.
pub const APPEND_INFLATED_BYTES: usize = 64 << 20;

/// And so many while some are put off, so that further ones of their producers take no more than
/// milliseconds each before they are put off too.
pub const APPEND_INFLATED_BYTES_IF_PUT_OFF: usize = 8 << 20;

/// How long that thread waits where none of what it has may go first: what may is on its way to it.
pub const TURN_WAIT: Duration = Duration::from_millis(1);

/// Look-ups by time of one request go on in a log directory for so long; then the next request has
/// its turn. One look-up is not interrupted.
pub const SEARCH_PER_TURN: Duration = Duration::from_millis(10);

/// Batches that are appended at once by a network thread; more than these by the directory's own.
pub const APPEND_PIECES_AT_ONCE: usize = 4_096;

/// Partitions that a Fetch may name although there are none such, and still have a session for all
/// that it names; and those that it may forget beyond what its session holds.
pub const FETCH_UNKNOWN_MAX: usize = 1_000;

/// Topics that a Metadata request may have made, as CreateTopics: of more none is.
pub const CREATED_TOPICS_MAX: usize = 10_000;

/// Storage calls that a network thread collects before it makes them, even in mid-round.
pub const WORKS_PER_ROUND: usize = 64;

/// A network thread has one busy client alone if no other connection has moved for so long,
/// milliseconds: it waits for the next request without sleeping, and makes records durable itself
/// that are at most so many bytes.
pub const ALONE_MS: u64 = 100;
pub const ALONE_FLUSH_BYTES_MAX: usize = 64 * 1024;

/// And flushes take at most so long on a moving average: well below the watchdog's tick.
pub const FAST_FLUSH_MAX: Duration = Duration::from_millis(2);

/// When a flush is tried again that found no descriptor for a file.
pub const FLUSH_RETRY: Duration = Duration::from_millis(100);

/// How long a network thread runs at a time where processors are short: the
/// least that Linux grants.
pub const NETWORK_SLICE: Duration = Duration::from_micros(100);

/// How often the watchdog looks for storage calls that do not return, milliseconds; one that sleeps
/// at the second look is left to itself. One that computes has so many ticks.
pub const STORAGE_TICK_MS: u64 = 5;
pub const STORAGE_BUSY_TICKS: u32 = 8;

/// A log directory whose writes have not returned for so long gets no new partitions while there is
/// another.
pub const DIRECTORY_SILENCE_MS: u64 = 2_000;

/// Ticks without a storage call after which the watchdog sleeps.
pub const WATCHDOG_QUIET_TICKS: u32 = 20;

/// Network threads beyond the usual number: those that are stuck in a storage call, or wait to go
/// on for one that is. Beyond it a stuck call holds its network thread.
pub const SPARE_THREADS_MAX: usize = 4;

/// Timers that a network thread holds, and as many a connection; beyond it those of answered
/// requests are looked for and dropped.
pub const TIMERS_FREE: usize = 4096;
pub const TIMERS_PER_CONNECTION: usize = 8;

/// Connections that a network thread looks at in a round since they may be idle: to close them all
/// at once would keep others waiting.
pub const IDLE_LOOKS_PER_TURN: usize = 64;
/// Entries of connections that are gone among those that may become idle, and as many as there are
/// connections; beyond it they are dropped.
pub const IDLE_ENTRIES_FREE: usize = 4096;

/// The least time, milliseconds, that a Produce request has for its records to be appended and
/// flushed, if it says less: with less than a flush takes it would be told each time that its time
/// is over, though its records are there, and send them again.
pub const PRODUCE_WAIT_MS_MIN: u64 = 1_000;

/// Answers that a connection may owe before it is read no further.
pub const PARKED_SLOTS_MAX: usize = 256;

/// Memory that a network thread keeps of Produce requests it has answered, for the next ones: so
/// many, of at most so many partitions each.
pub const SPARE_REQUESTS_MAX: usize = 128;
pub const SPARE_PARTITIONS_MAX: usize = 16;

/// Buffers of answers that a network thread keeps for the next ones, and their largest size, bytes.
pub const SPARE_ANSWERS_MAX: usize = 64;
pub const SPARE_ANSWER_BYTES_MAX: usize = 4 * 1024;

/// How long a client that has closed its side is owed each answer, and the beginning of each
/// request, milliseconds; then its connection is closed.
pub const GONE_WAIT_MS: u64 = 10_000;

/// Answers in bytes that a connection may leave unread, or that wait there for an earlier one, with
/// what its requests take that wait, before its next request is looked at. All of them together
/// count as requests that wait do (`RECEIVE_BUDGET_MAX`, `SLOW_FRAME_MS`).
pub const UNSENT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes sent to one connection before the next connection's turn.
pub const SEND_BYTES_PER_TURN: usize = 8 * 1024 * 1024;

/// An answer with so much to send is long, and a thread beside the network thread sends it: so much
/// of it, bytes, as long as the socket has room again within so long, milliseconds.
pub const LONG_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// Where other connections wait for the network thread, so much is long, bytes: while that alone is
/// busy with such answers, other processors have nothing to do. A lone connection would pay a third
/// more CPU for two changes of thread.
pub const LONG_ANSWER_BYTES_IF_OTHERS_WAIT: usize = 512 * 1024;
pub const LONG_ANSWER_BYTES_PER_TURN: usize = 64 * 1024 * 1024;
pub const LONG_ANSWER_WAIT_MS: i32 = 2;

/// Bytes of one `sendfile` call.
pub const SENDFILE_BYTES: usize = 4 * 1024 * 1024;

/// A frame has an i32 for its size, so no answer is larger, bytes: a Fetch reads less for it, and
/// any other request that would have a larger one is refused, which ends its connection.
pub const ANSWER_BYTES_MAX: i32 = i32::MAX;

/// Bytes that an answer of Python's takes at most before it is written, and Python some seconds: a
/// client that names the same thing a million times is refused beyond it, which ends its
/// connection. The configurations of twenty thousand topics are less.
pub const CONTROL_ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Bytes of an answer to a request of the broker's own: beyond it the connection is closed. A batch
/// of the metadata has up to 8 MiB, and what is forwarded describes a cluster at most.
pub const OUTBOUND_ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

/// `replica.lag.time.max.ms` where nobody says: a follower that has not been caught up
/// for so long is not in sync.
pub const REPLICA_LAG_MS_MAX: i64 = 30_000;

/// A fetch session that was not used for so long, or that is smaller than a new one and older than
/// this, gives way to the new one when all slots are taken, milliseconds (KIP-227).
pub const FETCH_SESSION_EVICTION_MS: u64 = 120_000;

/// Partitions that all fetch sessions hold together; beyond it no session is made, one that would
/// grow is ended, and a client goes on with full requests. Kafka bounds the sessions only.
pub const FETCH_SESSION_PARTITIONS_MAX: usize = 500_000;

/// Bytes of the longest name of a topic (`Topic.validate`). No fetch session keeps a longer one.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Longest that a stop waits for answers to be made and sent, milliseconds.
pub const STOP_WAIT_MS: u64 = 5_000;

/// How often a network thread looks at listeners that it looked away from and at memory that is
/// short, and the longest that it sleeps, milliseconds.
pub const HOUSEKEEPING_MS: u64 = 1_000;

/// The log says at most so often why records of producers could not be stored.
pub const STORAGE_NOTICE_MS: u64 = 1_000;

/// And why the requests of clients are refused.
pub const REFUSAL_NOTICE_MS: u64 = 1_000;

/// Bytes read at once from a segment whose records become Arrow columns; more for a larger batch.
/// Small enough to stay in a core's second cache until CRC and columns are done with it.
pub const ARROW_READ_BYTES: usize = 256 * 1024;

/// Inflated bytes of a compressed batch that a reader of columns holds at a time, beside a piece of
/// the stream and a record that is larger.
pub const ARROW_INFLATED_BYTES: usize = 1 << 20;

/// Bytes of a log after which an endpoint's client gets a batch without rows, if there were none
/// in them: it hears that its read goes on, and a read that nobody wants any more ends.
pub const ARROW_SILENT_BYTES_MAX: usize = 64 << 20;

/// Segments that one reader of columns holds open; the next ones are opened when these are read.
pub const ARROW_OPEN_SEGMENTS_MAX: usize = 64;

/// Attempts to list and open the segments of a partition that keep changing under the reader.
pub const ARROW_LIST_ATTEMPTS_MAX: usize = 1000;

/// Bytes searched for a whole batch behind bytes at the end of a log that are none: if there is
/// one, they are not a torn tail but damage.
pub const ARROW_TAIL_SEARCH_BYTES: u64 = 8 << 20;

/// Objects and lists within one another in a JSON text, beyond which a record is bad: Jackson's
/// bound, and so Spark's. Nothing recurses by it.
pub const JSON_DEPTH_MAX: usize = 1000;

/// Keys of a JSON object that are known again in the next one without being looked up.
pub const JSON_KEYS_REMEMBERED_MAX: usize = 256;

/// Uses of the types of Avro schemas by the wanted fields: so many and one more for each byte of
/// the schemas. Types that hold others in turn may be used twice as often with each level; beyond
/// it the schema is refused.
pub const AVRO_STEPS_FREE: usize = 8192;

/// Values within one another that an Avro reader passes over, of a type that contains itself;
/// beyond it a record is bad.
pub const AVRO_DEPTH_MAX: usize = 512;

/// Upper bounds of what a caller may set for one Arrow batch: its rows, and the bytes of its keys,
/// values and headers (offsets in Arrow's binary columns are 32 bits).
pub const ARROW_BATCH_ROWS_MAX: usize = 1 << 20;
pub const ARROW_BATCH_BYTES_MAX: usize = 1 << 29;

/// How many times the bytes that a caller sets for an Arrow batch its typed fields may take, texts
/// aside; the next record goes into the next batch. Room for rows of common schemas, which take up
/// to the batch's own bytes.
pub const ARROW_DECODED_RATIO: usize = 8;

/// Bounds of what the Arrow batches of all clients of an endpoint may take, between which it is a
/// quarter of the memory, bytes; a batch for which there is no room waits so long, milliseconds,
/// and its read is refused then.
pub const ARROW_BATCHES_BYTES_MIN: u64 = 64 * 1024 * 1024;
pub const ARROW_BATCHES_BYTES_MAX: u64 = 2 * 1024 * 1024 * 1024;
pub const ARROW_ROOM_WAIT_MS: u64 = 30_000;

/// The part of these bytes that reads may keep together for rows of batches that are not full,
/// while they wait for the next rows; others send theirs before they wait.
pub const ARROW_BATCHES_KEPT_PART: usize = 8;

/// A request to the Arrow endpoint, bytes; a longer one closes its connection. Room for the
/// schema of a thousand fields.
pub const ARROW_REQUEST_BYTES_MAX: usize = 1 << 20;

/// The same on a connection that has shown the endpoint's secret, bytes: room for the offsets of
/// 100,000 partitions, or a registry of thousands of schemas.
pub const ARROW_REQUEST_KNOWN_BYTES_MAX: usize = 64 << 20;

/// A request is received in pieces of so many bytes, for which memory is taken as they come.
pub const ARROW_REQUEST_PIECE_BYTES: usize = 64 * 1024;

/// Bytes of memory that one byte of a request becomes at most, while it is decoded (an empty list
/// in JSON), and for as long as its rows are read (a branch of a union in Avro).
pub const ARROW_REQUEST_RATIO: usize = 32;
pub const ARROW_REQUEST_RATIO_KEPT: usize = 16;

/// Bytes of a request for whose memory nobody asks; that of longer ones is bounded for all clients
/// together.
pub const ARROW_REQUEST_BYTES_FREE: usize = 16 * 1024;

/// A schema of a request may come to so many times its bytes, if a part counts as often as it is
/// used, and in any case to so many bytes; a larger one is refused.
pub const ARROW_SCHEMA_RATIO_MAX: usize = 4;
pub const ARROW_SCHEMA_BYTES_FREE: usize = 64 * 1024;

/// Columns that `csv.columns` may name, as many as Spark's own reader takes (`maxColumns`); more
/// are refused.
pub const CSV_COLUMNS_MAX: usize = 20_480;

/// Connections of an Arrow endpoint, a thread each; one more is told so and closed.
pub const ARROW_CONNECTIONS_MAX: usize = 256;

/// How long a client of an Arrow endpoint that has a secret may take to show it, milliseconds:
/// other users of the machine reach the port, and take a connection from its owner.
pub const ARROW_SECRET_WAIT_MS: u64 = 10_000;

/// Clients of an Arrow endpoint that are told at once that there are too many; others are closed
/// without a word.
pub const ARROW_REFUSALS_MAX: usize = 8;

/// Bytes that the broker's Arrow endpoint takes out of a log at once; more for a larger batch. As
/// `ARROW_READ_BYTES`, it is to stay in a core's cache.
pub const ARROW_FETCH_BYTES: u64 = 256 * 1024;

/// Buffers written to a client of the Arrow endpoint by one call; Linux allows 1,024.
pub const ARROW_WRITE_VECTORS_MAX: usize = 1024;

/// How long a failed connection of the Arrow endpoint is kept for its client to read why,
/// milliseconds.
pub const ARROW_LINGER_MS: u64 = 1_000;

/// How long an Arrow endpoint that stops waits for clients to take the batch under way and the
/// sentence behind it, milliseconds; then they are cut off.
pub const ARROW_STOP_GRACE_MS: u64 = 500;

/// How long an Arrow endpoint that can take no client (no descriptor, no thread) waits before it
/// tries again, milliseconds.
pub const ARROW_ACCEPT_RETRY_MS: u64 = 100;

/// Bytes of finished batches that one call of the encoder of Arrow rows
/// gives; more in the next one.
pub const ENCODED_BYTES_MAX: usize = 4 << 20;

/// Bytes that a sentence quotes of a value that a message cannot hold.
pub const VALUE_QUOTED_BYTES_MAX: usize = 200;

/// After so many answers without news, each in less than that share of the time for which a Fetch
/// waits, a leader is left alone for a while (`replica.fetch.backoff.ms`).
pub const FOLLOWER_HASTY_ANSWERS_MAX: u32 = 10;
pub const FOLLOWER_HASTY_SHARE: i64 = 4;

/// How often a follower looks at all its partitions, milliseconds: between two looks at those alone
/// that an answer has named. What it finds is that retention has moved a log start.
pub const FOLLOWER_SWEEP_MS: i64 = 500;

/// Bytes of a leader's answer beyond `replica.fetch.response.max.bytes`: its first batch comes
/// whole, and may be as large as a batch can be. A larger answer closes the connection.
pub const FOLLOWER_ANSWER_EXCESS_BYTES: usize = BATCH_BYTES_MAX + (1 << 20);

/// The buffer that a fetcher keeps for answers is no larger than twice what it
/// asks for, and so many bytes.
pub const FOLLOWER_BUFFER_KEPT_BYTES: usize = 1 << 20;

/// How long a fetcher without a partition waits for one before its thread ends.
pub const FETCHER_LINGER: Duration = Duration::from_secs(10);

/// Where a leader is silent for so much longer than a Fetch waits there, a fetcher that is to
/// follow something else looks for it by another connection.
pub const FETCHER_SILENCE: Duration = Duration::from_secs(1);

/// For how long a trouble with a leader is not told again, and of how many kinds that is
/// remembered; beyond, all are told anew.
pub const FETCHER_TROUBLE_PAUSE_MS: i64 = 60_000;
pub const FETCHER_TROUBLE_KINDS_MAX: usize = 100;

/// How long a stop waits for the threads of all fetchers, whose connections it has shut.
pub const FETCHER_STOP_WAIT: Duration = Duration::from_secs(5);

/// Bytes that a step of a move between log directories copies, and what the last step copies at a
/// time, while appends wait for it.
pub const MOVE_PIECE_BYTES: u64 = 1 << 20;

/// How long a move waits for records, or for the controller's word, and how long after a failure.
pub const MOVE_WAIT: Duration = Duration::from_millis(20);
pub const MOVE_RETRY: Duration = Duration::from_secs(1);

/// How long the beginning of a move may take, or a step of a move that is to end, before those that
/// would wait for it are refused: its disk does not answer.
pub const MOVE_BEGIN_WAIT: Duration = Duration::from_secs(5);

/// How long a move may have the name of its partition in the new log directory, at its end, before
/// a log that is to be made there under that name is refused: the disk that the move leaves does
/// not answer, and whatever else is made or deleted in the new directory waits behind.
pub const HAND_OVER_WAIT: Duration = Duration::from_secs(5);

// Limits that depend on each other: a build in which one of these does not hold would be wrong.
const _: () = {
    // A batch that may be read whole is one that a frame, an index and an Arrow column can hold.
    assert!(BATCH_BYTES_MAX <= i32::MAX as usize);
    assert!(INFLATED_BYTES_MAX <= i32::MAX as usize);
    // A record has at least 7 bytes, and its time delta grows from one byte to ten at most.
    assert!(INFLATED_BYTES_MAX / 7 * (7 + 9) <= BATCH_BYTES_MAX);
    assert!(INFLATION_RATIO_FREE_BYTES <= INFLATED_BYTES_MAX);
    assert!(INFLATE_WINDOW_BYTES <= INFLATION_RATIO_FREE_BYTES);
    assert!(INFLATE_WINDOW_BYTES <= APPEND_INFLATED_BYTES_IF_PUT_OFF);
    assert!(APPEND_INFLATED_BYTES_IF_PUT_OFF <= APPEND_INFLATED_BYTES);
    assert!(INFLATE_WINDOW_BYTES <= SCRATCH_BYTES_KEPT_MAX);
    // What is read at once is a part of what is looked for.
    assert!(LOOK_UP_BYTES_MAX <= SCAN_CHUNK_BYTES as u64);
    assert!(LOOK_UP_BYTES_MAX <= TIMESTAMP_PROOF_BYTES_MAX);
    assert!(ARROW_READ_BYTES as u64 <= ARROW_TAIL_SEARCH_BYTES);
    // The count of a window is a byte; a client has five requests in flight.
    assert!(PRODUCER_BATCHES_MAX >= 1);
    assert!(PRODUCER_BATCHES_MAX <= u8::MAX as usize);
    assert!(DESCRIPTORS_SPARE < DESCRIPTORS_RESERVED);
    assert!(ARROW_OPEN_SEGMENTS_MAX < OPEN_SEGMENTS_MAX);
    // Linux takes 1,024 vectors a call.
    assert!(APPEND_VECTORS_MAX <= 1024);
    assert!(ARROW_WRITE_VECTORS_MAX <= 1024);
    assert!(APPEND_PIECES_AT_ONCE <= PRODUCED_BATCHES_MAX);
    // Frames: a receive buffer, then reserved space that grows, then the largest frame, then all.
    assert!(MEMORY_FREE_BYTES <= RECEIVE_BYTES);
    assert!(RECEIVE_BYTES <= RECEIVE_RESERVED_BYTES);
    assert!(RECEIVE_RESERVED_BYTES <= RECEIVE_GROWTH_MAX);
    assert!(RECEIVE_GROWTH_MAX <= LARGE_BUFFERS_KEPT_BYTES);
    assert!(RECEIVE_BUDGET_MIN <= RECEIVE_BUDGET_MAX);
    assert!(LARGE_REQUEST_BYTES <= RECEIVE_BYTES);
    assert!(REPETITIONS_BYTES_FREE as u64 <= RECEIVE_BUDGET_MIN);
    // A round has room for at least one request of each kind.
    assert!(WORK_OF_PRODUCE <= WORK_OF_OTHERS);
    assert!(WORK_OF_OTHERS <= WORK_PER_TURN);
    // Answers: the buffers kept, a slice, what may be unsent, what is long, what a round sends.
    assert!(SPARE_ANSWER_BYTES_MAX <= SLICE_BYTES);
    assert!(SLICE_BYTES <= UNSENT_BYTES_MAX);
    assert!(SLICE_BYTES * SLICE_COST <= SEND_BYTES_PER_TURN);
    assert!(LONG_ANSWER_BYTES_IF_OTHERS_WAIT <= LONG_ANSWER_BYTES);
    assert!(LONG_ANSWER_BYTES <= SEND_BYTES_PER_TURN);
    assert!(SENDFILE_BYTES <= SEND_BYTES_PER_TURN);
    assert!(SEND_BYTES_PER_TURN <= LONG_ANSWER_BYTES_PER_TURN);
    assert!(CONTROL_ANSWER_BYTES_MAX <= ANSWER_BYTES_MAX as usize);
    // Fetch sessions: one may name so many partitions that there are not.
    assert!(FETCH_UNKNOWN_MAX <= FETCH_SESSION_PARTITIONS_MAX);
    // A frame that comes slowly is noticed before one that waits for memory is given up.
    assert!(SLOW_FRAME_MS <= CLIENT_DUTY_MS);
    assert!(CLIENT_DUTY_MS + 2 * HOUSEKEEPING_MS <= FRAME_WAIT_MS);
    assert!(FRAME_WAIT_MS <= SLOW_CLIENT_MS);
    // Who waits is looked at more often than it may wait.
    assert!(HOUSEKEEPING_MS <= STOP_WAIT_MS);
    assert!(STOP_WAIT_MS <= GONE_WAIT_MS);
    assert!(HOUSEKEEPING_MS <= SLOW_FRAME_MS);
    assert!(ALONE_MS <= HOUSEKEEPING_MS);
    assert!(ALONE_FLUSH_BYTES_MAX <= STAGED_BYTES_MAX);
    // A flush that a network thread makes is over before the watchdog looks twice.
    assert!(FAST_FLUSH_MAX.as_millis() < STORAGE_TICK_MS as u128);
    assert!(STORAGE_TICK_MS * (STORAGE_BUSY_TICKS as u64) < DIRECTORY_SILENCE_MS);
    assert!(STORAGE_TICK_MS * (WATCHDOG_QUIET_TICKS as u64) < DIRECTORY_SILENCE_MS);
    assert!(FLUSH_RETRY.as_millis() < PRODUCE_WAIT_MS_MIN as u128);
    // Arrow: columns have 32-bit offsets; a read stays within what a caller may ask for.
    assert!(ARROW_BATCH_BYTES_MAX <= i32::MAX as usize);
    assert!(ARROW_BATCH_ROWS_MAX <= i32::MAX as usize);
    assert!(ARROW_READ_BYTES <= ARROW_BATCH_BYTES_MAX);
    assert!(ENCODED_BYTES_MAX <= ARROW_BATCH_BYTES_MAX);
    assert!(ARROW_REFUSALS_MAX <= ARROW_CONNECTIONS_MAX);
    assert!(ARROW_STOP_GRACE_MS <= STOP_WAIT_MS);
    assert!(ARROW_ACCEPT_RETRY_MS < ARROW_LINGER_MS);
    assert!(VALUE_QUOTED_BYTES_MAX < TOPIC_NAME_BYTES_MAX);
};
