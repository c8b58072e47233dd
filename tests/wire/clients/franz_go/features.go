// franz-go does the tasks of tests/wire/clients/features.py: each line of stdin is one, and gets a line of stdout
// with its name and what was seen, or the failure.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const takes = 30 * time.Second

type security struct{ CA, Mechanism, User, Password string }

type options struct {
	Acks, Codec, Isolation, Assignor, Instance, Target, Old, Password string
	Idempotent                                                        bool
	Count, Partitions, Iterations                                     int
	TimeMs                                                            int64     `json:"time_ms"`
	LaterMs                                                           int64     `json:"later_ms"`
	TransactionalID                                                   string    `json:"transactional_id"`
	Security                                                          *security `json:"security"`
	Wrong                                                             *security `json:"wrong"`
}

type task struct {
	Name, Operation, Bootstrap, Topic, Group string
	Values                                   []string
	Options                                  options
}

type said map[string]any

// What fails ends the task: answer recovers.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func soon() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), takes)
	time.AfterFunc(takes, cancel)
	return ctx
}

func must[T any](found T, err error) T {
	check(err)
	return found
}

func loggedIn(as *security) []kgo.Opt {
	var opts []kgo.Opt
	if as == nil {
		return opts
	}
	if as.CA != "" {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(must(os.ReadFile(as.CA)))
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{RootCAs: pool}))
	}
	login := scram.Auth{User: as.User, Pass: as.Password}
	switch as.Mechanism {
	case "PLAIN":
		opts = append(opts, kgo.SASL(plain.Auth{User: as.User, Pass: as.Password}.AsMechanism()))
	case "SCRAM-SHA-256":
		opts = append(opts, kgo.SASL(login.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		opts = append(opts, kgo.SASL(login.AsSha512Mechanism()))
	}
	return opts
}

func settings(t task, more ...kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(t.Bootstrap),
		kgo.ClientID(t.Name),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(50 * time.Millisecond),
	}
	if t.Options.Isolation == "read_committed" {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	return append(append(opts, loggedIn(t.Options.Security)...), more...)
}

func client(t task, more ...kgo.Opt) *kgo.Client { return must(kgo.NewClient(settings(t, more...)...)) }

func send(one *kgo.Client, topic string, values []string) {
	records := make([]*kgo.Record, len(values))
	for at, value := range values {
		records[at] = &kgo.Record{Topic: topic, Value: []byte(value)}
	}
	check(one.ProduceSync(soon(), records...).FirstErr())
}

// The values of the next records, of which there may be none.
func poll(one *kgo.Client, most int) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	fetches := one.PollRecords(ctx, most)
	for _, failed := range fetches.Errors() {
		if !errors.Is(failed.Err, context.DeadlineExceeded) {
			check(failed.Err)
		}
	}
	var values []string
	fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	return values
}

func take(one *kgo.Client, count int) []string {
	var values []string
	for deadline := time.Now().Add(takes); len(values) < count; {
		if time.Now().After(deadline) {
			panic(fmt.Sprintf("%d of %d records", len(values), count))
		}
		values = append(values, poll(one, count-len(values))...)
	}
	return values
}

func atStart(topic string, count int) kgo.Opt {
	offsets := map[int32]kgo.Offset{}
	for number := range count {
		offsets[int32(number)] = kgo.NewOffset().AtStart()
	}
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets})
}

func produce(t task) said {
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}[t.Options.Acks]
	codec := map[string]kgo.CompressionCodec{
		"": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}[t.Options.Codec]
	opts := []kgo.Opt{kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codec)}
	if !t.Options.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	one := client(t, opts...)
	defer one.Close()
	send(one, t.Topic, t.Values)
	return said{}
}

func transact(t task) said {
	one := client(t, kgo.TransactionalID(t.Options.TransactionalID))
	defer one.Close()
	half := len(t.Values) / 2
	for at, values := range [][]string{t.Values[:half], t.Values[half:]} {
		check(one.BeginTransaction())
		send(one, t.Topic, values)
		check(one.EndTransaction(soon(), kgo.TransactionEndTry(at == 0)))
	}
	return said{}
}

func transform(t task) said {
	session := must(kgo.NewGroupTransactSession(settings(t,
		kgo.TransactionalID(t.Options.TransactionalID), kgo.ConsumerGroup(t.Group), kgo.ConsumeTopics(t.Topic),
		kgo.RequireStableFetchOffsets())...))
	defer session.Close()
	for count := 0; count < len(t.Values); {
		fetches := session.PollFetches(soon())
		check(fetches.Err())
		check(session.Begin())
		fetches.EachRecord(func(record *kgo.Record) {
			session.Produce(soon(), &kgo.Record{Topic: t.Options.Target, Value: record.Value}, nil)
		})
		if must(session.End(soon(), kgo.TryCommit)) {
			count += fetches.NumRecords()
		}
	}
	return said{}
}

func assign(t task) said {
	one := client(t, atStart(t.Topic, t.Options.Partitions))
	defer one.Close()
	return said{"values": take(one, t.Options.Count)}
}

func times(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	of := func(found kadm.ListedOffsets, err error) int64 {
		check(err)
		return found[t.Topic][3].Offset
	}
	return said{
		"offset":    of(admin.ListOffsetsAfterMilli(soon(), t.Options.TimeMs, t.Topic)),
		"after_all": of(admin.ListOffsetsAfterMilli(soon(), t.Options.LaterMs, t.Topic)),
		"begin":     of(admin.ListStartOffsets(soon(), t.Topic)),
		"end":       of(admin.ListEndOffsets(soon(), t.Topic)),
	}
}

// A member counts the partitions that it has.
type member struct {
	*kgo.Client
	lock  sync.Mutex
	count int
}

func join(t task, more ...kgo.Opt) *member {
	joined := &member{}
	changed := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
			joined.lock.Lock()
			defer joined.lock.Unlock()
			joined.count += sign * len(changed[t.Topic])
		}
	}
	opts := append(more, kgo.ConsumerGroup(t.Group), kgo.ConsumeTopics(t.Topic), kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(100*time.Millisecond), kgo.OnPartitionsAssigned(changed(1)),
		kgo.OnPartitionsRevoked(changed(-1)), kgo.OnPartitionsLost(changed(-1)))
	joined.Client = client(t, opts...)
	return joined
}

func (m *member) share() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.count
}

// How many records it would commit.
func (m *member) read(topic string) int {
	count := 0
	for _, next := range m.UncommittedOffsets()[topic] {
		count += int(next.Offset)
	}
	return count
}

func shareWith(t task, kind kgo.Opt) said {
	members := []*member{join(t, kind), join(t, kind)}
	half := len(t.Values) / 2
	var values []string
	isDone := func() bool {
		for _, each := range members {
			if each.share() != 2 || each.read(t.Topic) != half {
				return false
			}
		}
		return true
	}
	for deadline := time.Now().Add(takes); !isDone(); {
		if time.Now().After(deadline) {
			panic(fmt.Sprintf("shares of %d and %d partitions, and %d records",
				members[0].share(), members[1].share(), len(values)))
		}
		for _, each := range members {
			values = append(values, poll(each.Client, len(t.Values))...)
		}
	}
	shares := []int{members[0].share(), members[1].share()}
	for _, each := range members {
		check(each.CommitUncommittedOffsets(soon()))
	}
	for _, each := range members {
		each.Close()
	}
	return said{"values": values, "shares": shares}
}

func share(t task) said {
	return shareWith(t, kgo.Balancers(map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	}[t.Options.Assignor]))
}

func shareNext(t task) said { return shareWith(t, kgo.ServerSideBalancer()) }

func comeBack(t task) said {
	first := join(t, kgo.InstanceID(t.Options.Instance))
	values := take(first.Client, 12)
	check(first.CommitUncommittedOffsets(soon()))
	first.Close()
	again := join(t, kgo.InstanceID(t.Options.Instance))
	defer again.Close()
	values = append(values, take(again.Client, len(t.Values)-12)...)
	return said{"values": values, "assigned": again.share()}
}

func topics(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	day := "86400000"
	must(admin.CreateTopic(soon(), 3, 1, map[string]*string{"retention.ms": &day}, t.Topic))
	found := must(admin.ListTopics(soon(), t.Topic))
	must(admin.DeleteTopic(soon(), t.Options.Old))
	return said{"partitions": len(found[t.Topic].Partitions)}
}

func configs(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	retention, policy := "12345", "compact"
	changed := must(admin.AlterTopicConfigs(soon(), []kadm.AlterConfig{
		{Name: "retention.ms", Value: &retention}, {Name: "cleanup.policy", Value: &policy},
	}, t.Topic))
	check(changed[0].Err)
	found := map[string]any{}
	for _, each := range must(admin.DescribeTopicConfigs(soon(), t.Topic))[0].Configs {
		found[each.Key] = each.MaybeValue()
	}
	return said{"retention.ms": found["retention.ms"]}
}

func partitions(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	check(must(admin.UpdatePartitions(soon(), 3, t.Topic)).Error())
	return said{}
}

func deleteRecords(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	before := kadm.Offsets{}
	before.AddOffset(t.Topic, 0, 3, -1)
	found := must(admin.DeleteRecords(soon(), before))
	return said{"low_watermark": found[t.Topic][0].LowWatermark}
}

func groups(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	_, isListed := must(admin.ListGroups(soon()))[t.Group]
	state := must(admin.DescribeGroups(soon(), t.Group))[t.Group].State
	offset := must(admin.FetchOffsets(soon(), t.Group))[t.Topic][0].At
	must(admin.DeleteGroup(soon(), t.Group))
	return said{"is_listed": isListed, "state": state, "offset": offset}
}

func reset(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	to := kadm.Offsets{}
	to.AddOffset(t.Topic, 0, 3, -1)
	check(must(admin.CommitOffsets(soon(), t.Group, to)).Error())
	return said{}
}

func acls(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	rule := func(users ...string) *kadm.ACLBuilder {
		return kadm.NewACLs().Topics(t.Topic).ResourcePatternType(kadm.ACLPatternLiteral).
			Operations(kadm.OpRead).Allow(users...).AllowHosts()
	}
	for _, made := range must(admin.CreateACLs(soon(), rule("User:new").AllowHosts("*"))) {
		check(made.Err)
	}
	users := []string{}
	for _, each := range must(admin.DescribeACLs(soon(), rule())) {
		for _, found := range each.Described {
			users = append(users, found.Principal)
		}
	}
	sort.Strings(users)
	for _, gone := range must(admin.DeleteACLs(soon(), rule("User:old"))) {
		check(gone.Err)
	}
	return said{"users": users}
}

func users(t task) said {
	admin := kadm.NewClient(client(t))
	defer admin.Close()
	made := kadm.UpsertSCRAM{
		User: "new", Mechanism: kadm.ScramSha256,
		Iterations: int32(t.Options.Iterations), Password: t.Options.Password,
	}
	check(must(admin.AlterUserSCRAMs(soon(), nil, []kadm.UpsertSCRAM{made})).Error())
	found := must(admin.DescribeUserSCRAMs(soon(), "new", "old"))
	var gone []kadm.DeleteSCRAM
	for _, each := range found["old"].CredInfos {
		gone = append(gone, kadm.DeleteSCRAM{User: "old", Mechanism: each.Mechanism})
	}
	check(must(admin.AlterUserSCRAMs(soon(), gone, nil)).Error())
	return said{"iterations": found["new"].CredInfos[0].Iterations}
}

func secure(t task) said {
	one := client(t, atStart(t.Topic, 1))
	defer one.Close()
	send(one, t.Topic, t.Values)
	values := take(one, len(t.Values))
	t.Options.Security = t.Options.Wrong
	stranger := client(t, kgo.RequestRetries(0))
	defer stranger.Close()
	return said{"values": values, "is_refused": stranger.Ping(soon()) != nil}
}

var operations = map[string]func(task) said{
	"produce": produce, "transact": transact, "transform": transform, "assign": assign, "times": times,
	"share": share, "share_next": shareNext, "come_back": comeBack, "topics": topics, "configs": configs,
	"partitions": partitions, "delete_records": deleteRecords, "groups": groups, "reset": reset, "acls": acls,
	"users": users, "secure": secure,
}

func answer(t task) (found map[string]any) {
	defer func() {
		if failed := recover(); failed != nil {
			found = map[string]any{"name": t.Name, "failure": fmt.Sprint(failed)}
		}
	}()
	return map[string]any{"name": t.Name, "said": operations[t.Operation](t)}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	var all sync.WaitGroup
	var out sync.Mutex
	for lines.Scan() {
		var t task
		check(json.Unmarshal(lines.Bytes(), &t))
		all.Go(func() {
			line := must(json.Marshal(answer(t)))
			out.Lock()
			defer out.Unlock()
			fmt.Println(string(line))
		})
	}
	check(lines.Err())
	all.Wait()
}
