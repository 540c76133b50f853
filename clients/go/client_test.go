package requeue_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

var ctx = context.Background()

type order struct {
	Number int    `json:"number"`
	Note   string `json:"note"`
}

const token = "0123456789abcdef0123"

func TestNewUsesTheEnvironment(t *testing.T) {
	server := startServer(t, "REQUEUE_TOKEN="+token)
	t.Setenv("REQUEUE_SERVER", server.url)
	t.Setenv("REQUEUE_TOKEN", token)
	client, err := requeue.New()
	check(t, err)
	_, err = client.Stats(ctx)
	check(t, err)

	client, err = requeue.New(requeue.WithToken("wrong"))
	check(t, err)
	if _, err = client.Stats(ctx); !errors.Is(err, requeue.ErrUnauthorized) {
		t.Errorf("the error is %v", err)
	}
}

func TestBodiesArriveAsTheyWerePut(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	bodies := map[string]struct {
		body any
		want requeue.Body
	}{
		"struct": {order{1, "<ü>"}, requeue.Body{Data: []byte(`{"number":1,"note":"<ü>"}`), ContentType: "application/json"}},
		"null":   {json.RawMessage("null"), requeue.Body{Data: []byte("null"), ContentType: "application/json"}},
		"string": {"text", requeue.Body{Data: []byte(`"text"`), ContentType: "application/json"}},
		"nil":    {nil, requeue.Body{ContentType: "application/octet-stream"}},
		"text":   {requeue.Text("a\nb"), requeue.Text("a\nb")},
		"bytes":  {requeue.Bytes([]byte{0, 0xff}), requeue.Bytes([]byte{0, 0xff})},
		"raw JSON": {
			requeue.Body{Data: []byte(`{ "n" : 1e400 }`), ContentType: "application/json"},
			requeue.Body{Data: []byte(`{ "n" : 1e400 }`), ContentType: "application/json"},
		},
	}
	for id, test := range bodies {
		put(t, client, kind, id, test.body)
		job, err := client.Get(ctx, kind, id)
		check(t, err)
		if string(job.Body.Data) != string(test.want.Data) || job.Body.ContentType != test.want.ContentType {
			t.Errorf("%s: got %q of %s", id, job.Body.Data, job.Body.ContentType)
		}
	}
	_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "ambiguous", Body: []byte("{}")})
	if !errors.Is(err, requeue.ErrInvalid) {
		t.Errorf("a []byte was accepted: %v", err)
	}
}

// gobCodec encodes bodies in a binary format.
type gobCodec struct{}

func (gobCodec) ContentType() string { return "application/x-gob" }

func (gobCodec) Encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	err := gob.NewEncoder(&buffer).Encode(value)
	return buffer.Bytes(), err
}

func (gobCodec) Decode(data []byte, target any) error {
	return gob.NewDecoder(bytes.NewReader(data)).Decode(target)
}

func TestACodecEncodesBodiesAndDecodesThem(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t, requeue.WithCodec(gobCodec{})), newKind(t)
	put(t, client, kind, "a", order{7, "gob"})
	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	check(t, err)
	var got order
	check(t, claimed.Jobs[0].Decode(&got))
	if got != (order{7, "gob"}) || claimed.Jobs[0].Body.ContentType != "application/x-gob" {
		t.Errorf("got %v of %s", got, claimed.Jobs[0].Body.ContentType)
	}
}

func TestIDsOfAnyCharactersArePossible(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	for _, id := range []string{"a/b", "a b", "a+b", "ü?#%2F", "a:b@c$d&e=f;g,h", "..", ".", "\n\"\\", strings.Repeat("x", 512)} {
		put(t, client, kind, id, nil)
		job, err := client.Get(ctx, kind, id)
		if err != nil || job.ID != id {
			t.Errorf("%q: %v", id, err)
		}
		if _, err = client.Cancel(ctx, kind, id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func TestPutSendsAllFields(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	due := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
	result, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Due: due, Priority: 3, IfNew: true})
	check(t, err)
	if result.Outcome != requeue.Created || result.Generation == 0 {
		t.Errorf("got %+v", result)
	}
	job, err := client.Get(ctx, kind, "a")
	check(t, err)
	if !job.Due.Equal(due) || job.Priority != 3 || job.State != requeue.StateWaiting || job.Generation != result.Generation {
		t.Errorf("got %+v", job)
	}

	result, err = client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Delay: time.Hour, Mode: requeue.Keep})
	check(t, err)
	if result.Outcome != requeue.Kept {
		t.Errorf("got %+v", result)
	}
	_, err = client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Delay: 36 * time.Hour, Mode: requeue.Earliest})
	check(t, err)
	job, err = client.Get(ctx, kind, "a")
	check(t, err)
	if !job.Due.Equal(due) {
		t.Errorf("due is %v", job.Due)
	}
	_, err = client.Put(ctx, requeue.PutJob{Kind: kind, ID: "b", Delay: 1500 * time.Millisecond, Mode: requeue.Debounce, MaxWait: time.Hour})
	check(t, err)
}

func TestAPutWhoseConditionFailsNamesTheGeneration(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	first, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", IfGeneration: 0})
	check(t, err)

	_, err = client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", IfAbsent: true})
	var problem *requeue.Problem
	if !errors.Is(err, requeue.ErrExists) || !errors.As(err, &problem) || problem.Generation != first.Generation || problem.Status != 409 {
		t.Errorf("the error is %+v", err)
	}
	if errors.Is(err, requeue.ErrNotDone) || errors.Is(err, requeue.ErrOutcomeUnknown) {
		t.Error("a rejected request is neither not done nor unknown")
	}
	_, err = client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", IfGeneration: first.Generation + 1})
	if !errors.Is(err, requeue.ErrOtherGeneration) {
		t.Errorf("the error is %v", err)
	}
	_, err = client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", IfGeneration: first.Generation})
	check(t, err)
}

func TestInvalidPutsNameTheField(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	for field, job := range map[string]requeue.PutJob{
		"kind":     {ID: "a"},
		"id":       {Kind: kind},
		"delay":    {Kind: kind, ID: "a", Delay: -time.Second},
		"priority": {Kind: kind, ID: "a", Priority: 10},
		"max_wait": {Kind: kind, ID: "a", Mode: requeue.Debounce},
	} {
		_, err := client.Put(ctx, job)
		var problem *requeue.Problem
		if !errors.As(err, &problem) || problem.Field != field {
			t.Errorf("%s: the error is %v", field, err)
		}
	}
	_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Due: time.Now(), Delay: time.Second})
	if !errors.Is(err, requeue.ErrInvalid) {
		t.Errorf("a job with a due time and a delay: %v", err)
	}
	_, err = client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Delay: 4000 * 24 * time.Hour})
	var problem *requeue.Problem
	if !errors.As(err, &problem) || problem.Limit != "3660d" || problem.Value != "4000d" || problem.What == "" {
		t.Errorf("the error is %+v", err)
	}
}

func TestPutManyReportsEachJob(t *testing.T) {
	t.Parallel()
	client, kind, other := newClient(t), newKind(t), newKind(t)
	results, err := client.PutMany(ctx, []requeue.PutJob{
		{Kind: kind, ID: "a", Body: 1},
		{Kind: other, ID: "b", Priority: 11},
		{Kind: other, ID: "c", IfAbsent: true},
	})
	var failed *requeue.BatchError
	if !errors.As(err, &failed) || len(failed.Results) != 3 || !strings.Contains(err.Error(), `1 of 3 jobs were not put; the first is jobs[1] ("b" of kind `) {
		t.Fatalf("the error is %v", err)
	}
	// They apply to one job, not to the request.
	if errors.Is(err, requeue.ErrInvalid) || errors.Is(err, requeue.ErrNotDone) || errors.Is(err, requeue.ErrOutcomeUnknown) {
		t.Errorf("the error is %v", err)
	}
	if results[0].Outcome != requeue.Created || results[0].Err != nil || results[2].Err != nil {
		t.Errorf("got %+v", results)
	}
	if !errors.Is(results[1].Err, requeue.ErrInvalid) {
		t.Errorf("the error is %v", results[1].Err)
	}
	if !isAbsent(t, client, other, "b") || isAbsent(t, client, other, "c") {
		t.Error("the wrong jobs were put")
	}
	if _, err = client.PutMany(ctx, []requeue.PutJob{{Kind: kind}}); !errors.Is(err, requeue.ErrInvalid) {
		t.Errorf("the error is %v", err)
	}
}
