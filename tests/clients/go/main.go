// franz-go behind a line protocol: one JSON object a line over the connection to 127.0.0.1:<port>,
// whose answer carries its id. drivers.py is the other end and documents the operations.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

type header struct {
	Name  string
	Value []byte
}

// Bytes travel as base64, which is what encoding/json makes of []byte; null stays null.
type record struct {
	Topic     string   `json:"topic"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Partition *int32   `json:"partition"`
	Timestamp *int64   `json:"timestamp"`
	Headers   []header `json:"headers"`
	Offset    int64    `json:"offset"`
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.Name, &h.Value})
}

type place struct {
	Topic     string
	Partition int32
	Offset    int64
}

func (p *place) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&p.Topic, &p.Partition, &p.Offset})
}

type request struct {
	ID              int64    `json:"id"`
	Op              string   `json:"op"`
	Name            string   `json:"name"`
	Servers         string   `json:"servers"`
	Codec           string   `json:"codec"`
	Idempotent      bool     `json:"idempotent"`
	TransactionalID *string  `json:"transactional_id"`
	TransactionMs   int64    `json:"transaction_timeout_ms"`
	CommittedOnly   bool     `json:"committed_only"`
	Commit          bool     `json:"commit"`
	RequestBytesMax int32    `json:"request_bytes_max"`
	Records         []record `json:"records"`
	Topics          []string `json:"topics"`
	Pattern         string   `json:"pattern"`
	Assign          []place  `json:"assign"`
	Group           *string  `json:"group"`
	AutoCommit      bool     `json:"auto_commit"`
	HeartbeatMs     int64    `json:"heartbeat_ms"`
	SessionMs       int64    `json:"session_ms"`
	AutoCommitMs    int64    `json:"auto_commit_ms"`
	TimeoutMs       int64    `json:"timeout_ms"`
	Topic           string   `json:"topic"`
	Partition       int32    `json:"partition"`
	Offset          int64    `json:"offset"`
	Offsets         []place  `json:"offsets"`
	Wait            bool     `json:"wait"`
}

type answer map[string]any

type handler interface {
	handle(request) (answer, error)
}

func milliseconds(count int64) time.Duration { return time.Duration(count) * time.Millisecond }

// producer: franz-go sets the partitioner per client, so there is one that obeys the record.
type producer struct{ keyed, manual *kgo.Client }

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func producerOptions(r request) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(r.Servers),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ProducerBatchCompression(codecs[r.Codec]),
		kgo.ProducerBatchMaxBytes(r.RequestBytesMax),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if r.TransactionalID != nil {
		return append(options,
			kgo.TransactionalID(*r.TransactionalID),
			kgo.TransactionTimeout(milliseconds(r.TransactionMs)),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if !r.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return options
}

func newProducer(r request) (*producer, error) {
	options := producerOptions(r)
	manual, err := kgo.NewClient(append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil || r.TransactionalID != nil {
		return &producer{manual, manual}, err
	}
	keyed, err := kgo.NewClient(append(options, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))...)
	return &producer{keyed, manual}, err
}

func (p *producer) handle(r request) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch r.Op {
	case "send":
		return answer{}, p.send(ctx, r.Records)
	case "begin":
		return answer{}, p.manual.BeginTransaction()
	case "commit":
		return answer{}, p.manual.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return answer{}, p.manual.EndTransaction(ctx, kgo.TryAbort)
	case "close":
		p.keyed.Close()
		p.manual.Close()
		return answer{}, nil
	}
	return nil, fmt.Errorf("a producer has no %s", r.Op)
}

func (p *producer) send(ctx context.Context, records []record) error {
	var done sync.WaitGroup
	failures := make([]error, len(records))
	for at, given := range records {
		client := p.keyed
		if given.Partition != nil {
			client = p.manual
		}
		done.Add(1)
		client.Produce(ctx, given.toSend(), func(_ *kgo.Record, err error) {
			failures[at] = err
			done.Done()
		})
	}
	done.Wait()
	return errors.Join(failures...)
}

func (given record) toSend() *kgo.Record {
	sent := &kgo.Record{Topic: given.Topic, Key: given.Key, Value: given.Value}
	if given.Partition != nil {
		sent.Partition = *given.Partition
	}
	if given.Timestamp != nil {
		sent.Timestamp = time.UnixMilli(*given.Timestamp)
	}
	for _, each := range given.Headers {
		sent.Headers = append(sent.Headers, kgo.RecordHeader{Key: each.Name, Value: each.Value})
	}
	return sent
}

type fetcher interface {
	PollFetches(context.Context) kgo.Fetches
}

type consumer struct {
	client *kgo.Client
	source fetcher
	lock   sync.Mutex
	shares map[string]map[int32]bool
}

func newConsumer(r request) (*consumer, error) {
	c := &consumer{shares: map[string]map[int32]bool{}}
	var err error
	c.client, err = kgo.NewClient(c.options(r)...)
	c.source = c.client
	return c, err
}

func (c *consumer) options(r request) []kgo.Opt {
	options := []kgo.Opt{
		kgo.SeedBrokers(r.Servers),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100 * time.Millisecond),
	}
	if r.CommittedOnly {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if r.Group != nil {
		options = append(options,
			kgo.ConsumerGroup(*r.Group),
			kgo.HeartbeatInterval(milliseconds(r.HeartbeatMs)),
			kgo.SessionTimeout(milliseconds(r.SessionMs)),
			kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, got map[string][]int32) {
				c.share(got, true)
			}),
			kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, lost map[string][]int32) {
				c.share(lost, false)
				if r.AutoCommit { // as franz-go does without a callback of the user's
					_ = client.CommitUncommittedOffsets(ctx)
				}
			}),
			kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
				c.share(lost, false)
			}))
		if r.AutoCommit {
			options = append(options, kgo.AutoCommitInterval(milliseconds(r.AutoCommitMs)))
		} else {
			options = append(options, kgo.DisableAutoCommit())
		}
	}
	if len(r.Assign) > 0 {
		from := map[string]map[int32]kgo.Offset{}
		for _, each := range r.Assign {
			if from[each.Topic] == nil {
				from[each.Topic] = map[int32]kgo.Offset{}
			}
			from[each.Topic][each.Partition] = kgo.NewOffset().At(each.Offset)
		}
		options = append(options, kgo.ConsumePartitions(from))
	} else if r.Pattern != "" {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(r.Pattern))
	} else {
		options = append(options, kgo.ConsumeTopics(r.Topics...))
	}
	return options
}

func (c *consumer) share(partitions map[string][]int32, isMine bool) {
	c.lock.Lock()
	defer c.lock.Unlock()
	for topic, indexes := range partitions {
		if c.shares[topic] == nil {
			c.shares[topic] = map[int32]bool{}
		}
		for _, index := range indexes {
			c.shares[topic][index] = isMine
		}
	}
}

func (c *consumer) handle(r request) (answer, error) {
	switch r.Op {
	case "poll":
		return c.poll(r)
	case "assignment":
		c.lock.Lock()
		defer c.lock.Unlock()
		partitions := [][]any{}
		for topic, indexes := range c.shares {
			for index, isMine := range indexes {
				if isMine {
					partitions = append(partitions, []any{topic, index})
				}
			}
		}
		return answer{"partitions": partitions}, nil
	case "seek":
		c.client.SetOffsets(offsets([]place{{r.Topic, r.Partition, r.Offset}}))
		return answer{}, nil
	case "commit":
		return answer{}, c.commit(r)
	case "close":
		c.client.Close()
		return answer{}, nil
	}
	return nil, fmt.Errorf("a consumer has no %s", r.Op)
}

func (c *consumer) poll(r request) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), milliseconds(r.TimeoutMs))
	defer cancel()
	fetches := c.source.PollFetches(ctx)
	for _, each := range fetches.Errors() {
		// Others, as of a broker that is away, are told for information: franz-go goes on by itself.
		var refused *kerr.Error
		if errors.As(each.Err, &refused) && !refused.Retriable {
			return nil, each.Err
		}
	}
	records := []record{}
	fetches.EachRecord(func(got *kgo.Record) {
		timestamp := got.Timestamp.UnixMilli()
		headers := []header{}
		for _, each := range got.Headers {
			headers = append(headers, header{each.Key, each.Value})
		}
		records = append(records, record{
			got.Topic, got.Key, got.Value, &got.Partition, &timestamp, headers, got.Offset,
		})
	})
	return answer{"records": records}, nil
}

func (c *consumer) commit(r request) error {
	var refused error
	report := func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, _ *kmsg.OffsetCommitResponse, err error) {
		refused = err
	}
	if r.Wait {
		c.client.CommitOffsetsSync(context.Background(), offsets(r.Offsets), report)
	} else {
		c.client.CommitOffsets(context.Background(), offsets(r.Offsets), nil)
	}
	return refused
}

func offsets(places []place) map[string]map[int32]kgo.EpochOffset {
	found := map[string]map[int32]kgo.EpochOffset{}
	for _, each := range places {
		if found[each.Topic] == nil {
			found[each.Topic] = map[int32]kgo.EpochOffset{}
		}
		found[each.Topic][each.Partition] = kgo.EpochOffset{Epoch: -1, Offset: each.Offset}
	}
	return found
}

// transformer: what franz-go consumes and produces in one transaction is one client.
type transformer struct {
	consumer
	session *kgo.GroupTransactSession
}

func newTransformer(r request) (*transformer, error) {
	t := &transformer{consumer: consumer{shares: map[string]map[int32]bool{}}}
	var err error
	t.session, err = kgo.NewGroupTransactSession(append(t.options(r), producerOptions(r)...)...)
	if err == nil {
		t.client, t.source = t.session.Client(), t.session
	}
	return t, err
}

func (t *transformer) handle(r request) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	switch r.Op {
	case "begin":
		return answer{}, t.session.Begin()
	case "send":
		made := &producer{t.client, t.client}
		return answer{}, made.send(ctx, r.Records)
	case "end":
		committed, err := t.session.End(ctx, kgo.TransactionEndTry(r.Commit))
		return answer{"committed": committed}, err
	}
	return t.consumer.handle(r)
}

func main() {
	connection, err := net.Dial("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}
	var lock, writing sync.Mutex
	handlers := map[string]handler{}
	run := func(r request) (answer, error) {
		var made handler
		var err error
		switch r.Op {
		case "producer":
			made, err = newProducer(r)
		case "consumer":
			made, err = newConsumer(r)
		case "transformer":
			made, err = newTransformer(r)
		default:
			lock.Lock()
			found := handlers[r.Name]
			lock.Unlock()
			return found.handle(r)
		}
		lock.Lock()
		handlers[r.Name] = made
		lock.Unlock()
		return answer{}, err
	}
	requests := bufio.NewReaderSize(connection, 1<<20)
	for {
		line, err := requests.ReadBytes('\n')
		if err != nil {
			return // the tests are over
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			panic(err)
		}
		go func() {
			told, err := run(r)
			if err != nil {
				told = answer{"error": err.Error()}
			}
			told["id"] = r.ID
			text, _ := json.Marshal(told)
			writing.Lock()
			defer writing.Unlock()
			_, _ = connection.Write(append(text, '\n'))
		}()
	}
}
