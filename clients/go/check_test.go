package requeue_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

// offline returns a client that fails the test if it sends a request.
func offline(t *testing.T) *requeue.Client {
	t.Helper()
	client, err := requeue.New(
		requeue.WithServer("http://127.0.0.1:9"), requeue.WithHTTPClient(&http.Client{Transport: noTransport{t}}),
	)
	check(t, err)
	return client
}

type noTransport struct{ t *testing.T }

func (n noTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	n.t.Errorf("it was sent: %s %s", request.Method, request.URL)
	return nil, errors.New("nothing may be sent")
}

func TestNamesThatAreEmptyOrNoTextAreRejectedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	client := offline(t)
	change := requeue.Reschedule{Delay: requeue.Set(time.Hour)}
	second := func(_ any, err error) error { return err }
	for name, test := range map[string]struct {
		field string
		call  func(name string) error
	}{
		"Put, kind":     {"kind", func(n string) error { return second(client.Put(ctx, requeue.PutJob{Kind: n, ID: "a"})) }},
		"Put, id":       {"id", func(n string) error { return second(client.Put(ctx, requeue.PutJob{Kind: "k", ID: n})) }},
		"PutMany, kind": {"jobs[0].kind", func(n string) error { return second(client.PutMany(ctx, []requeue.PutJob{{Kind: n, ID: "a"}})) }},
		"PutMany, id": {"jobs[1].id", func(n string) error {
			return second(client.PutMany(ctx, []requeue.PutJob{{Kind: "k", ID: "a"}, {Kind: "k", ID: n}}))
		}},
		"Get, kind":   {"kind", func(n string) error { return second(client.Get(ctx, n, "a")) }},
		"Get, id":     {"id", func(n string) error { return second(client.Get(ctx, "k", n)) }},
		"Reschedule":  {"id", func(n string) error { return second(client.Reschedule(ctx, "k", n, change)) }},
		"Cancel":      {"id", func(n string) error { return second(client.Cancel(ctx, "k", n)) }},
		"RunNow":      {"ids[0]", func(n string) error { return second(client.RunNow(ctx, "k", n)) }},
		"CancelMany":  {"ids[1]", func(n string) error { return second(client.CancelMany(ctx, "k", []string{"a", n})) }},
		"CancelAll":   {"kind", func(n string) error { return second(client.CancelAll(ctx, n, requeue.Filter{})) }},
		"Count":       {"kind", func(n string) error { return second(client.Count(ctx, n, requeue.Filter{})) }},
		"ErrorGroups": {"kind", func(n string) error { return second(client.ErrorGroups(ctx, n)) }},
		"Claim":       {"kinds[1]", func(n string) error { return second(client.Claim(ctx, requeue.Claim{Kinds: []string{"k", n}})) }},
		"Wait":        {"kinds[0]", func(n string) error { return client.Wait(ctx, []string{n}, time.Second) }},
		"Kind":        {"kind", func(n string) error { return second(client.Kind(ctx, n)) }},
		"DeleteKind":  {"kind", func(n string) error { return second(client.DeleteKind(ctx, n)) }},
		"SetKind":     {"kind", func(n string) error { return second(client.SetKind(ctx, n, requeue.SettingsChange{})) }},
		"SetSchedule": {"id", func(n string) error {
			return second(client.SetSchedule(ctx, "k", n, requeue.Schedule{Every: time.Hour}))
		}},
		"DeleteSchedule": {"id", func(n string) error { return client.DeleteSchedule(ctx, "k", n) }},
		"Schedules":      {"kind", func(n string) error { return second(client.Schedules(ctx, n)) }},
	} {
		// encoding/json would send U+FFFD instead of bytes that are not UTF-8, which is another job.
		for _, name_ := range []string{"", "a\xff"} {
			err := test.call(name_)
			var problem *requeue.Problem
			if !errors.As(err, &problem) || problem.Name != requeue.ErrInvalid || problem.Field != test.field {
				t.Errorf("%s, %q: the error is %v", name, name_, err)
			}
		}
	}
	for _, job := range client.List(ctx, "", requeue.Filter{}, requeue.ByID) {
		if !errors.Is(job, requeue.ErrInvalid) {
			t.Errorf("List: the error is %v", job)
		}
	}
}

func TestNonsenseIsRejectedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	client := offline(t)
	second := func(_ any, err error) error { return err }
	for text, err := range map[string]error{
		"kinds: ":                second(client.Claim(ctx, requeue.Claim{})),
		"leases[0].job: ":        second(client.Settle(ctx, []requeue.Settlement{{Verb: requeue.VerbAck}})),
		"leases[0].receipt: ":    second(client.Ack(ctx, &requeue.Job{})),
		"nothing to change":      second(client.Reschedule(ctx, "k", "a", requeue.Reschedule{IfGeneration: 3})),
		"delay: ":                second(client.Reschedule(ctx, "k", "a", requeue.Reschedule{Due: requeue.Set(time.Now()), Delay: requeue.Set(time.Hour)})),
		"priority: ":             second(client.Reschedule(ctx, "k", "a", requeue.Reschedule{Priority: requeue.Unset[int]()})),
		"order: ":                second(client.Count(ctx, "k", requeue.Filter{Priority: requeue.Unset[int]()})),
		"the content type of a ": second(client.Reschedule(ctx, "k", "a", requeue.Reschedule{Body: requeue.Set[any]([]byte("{}"))})),
	} {
		if text == "order: " {
			text = "priority: "
		}
		if !errors.Is(err, requeue.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error is %v", text, err)
		}
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for server, text := range map[string]string{
		"127.0.0.1:7654":           `such as "http://127.0.0.1:7654"`,
		"localhost:7654":           `such as "http://localhost:7654"`,
		"//queue:7654":             `such as "http://queue:7654"`,
		"queue":                    `such as "http://queue"`,
		"ftp://queue":              `such as "http://queue"`,
		"http://":                  "http:// or https://",
		"":                         "http:// or https://",
		"http://queue?a=b":         "before '?' and '#'",
		"http://queue#a":           "before '?' and '#'",
		"http://ann:hunter2@queue": "pass a token instead",
		"ann:hunter2@queue":        "http:// or https://",
		"http://queue:hunter2":     "http:// or https://",
		"http://que ue":            "http:// or https://",
	} {
		_, err := requeue.New(requeue.WithServer(server))
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: the error is %v", server, err)
		}
		if strings.Contains(server, "ann") && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: the error contains the password: %v", server, err)
		}
	}
	for _, token := range []string{"a b", "a\nb", " hunter2", "ä"} {
		_, err := requeue.New(requeue.WithToken(token))
		if err == nil || strings.Contains(err.Error(), token) {
			t.Errorf("%q: the error is %v", token, err)
		}
	}
}

func TestErrorsOfConnectionsNameTheServer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	silent := startProxy(t, shared.url, func(*http.Request) fault { <-release; return pass })
	cut := startProxy(t, shared.url, func(*http.Request) fault { return loseResponse })
	for server, class := range map[string]error{
		refusedAddress(t):           requeue.ErrNotDone,
		"http://queue.invalid":      requeue.ErrNotDone,
		"https://" + shared.url[7:]: requeue.ErrNotDone, // It does not speak TLS.
		silent.url:                  requeue.ErrOutcomeUnknown,
		cut.url:                     requeue.ErrOutcomeUnknown,
	} {
		client, err := requeue.New(requeue.WithServer(server), requeue.WithRetryFor(0), requeue.WithTimeout(5*time.Second))
		check(t, err)
		_, err = client.Put(ctx, requeue.PutJob{Kind: "kind", ID: "secret-id", IfAbsent: true})
		other := map[error]error{requeue.ErrNotDone: requeue.ErrOutcomeUnknown, requeue.ErrOutcomeUnknown: requeue.ErrNotDone}[class]
		if !errors.Is(err, class) || errors.Is(err, other) || !strings.Contains(err.Error(), server) {
			t.Errorf("%s: the error is %v", server, err)
		}
		if strings.Count(err.Error(), server) != 1 {
			t.Errorf("it is not short: %v", err)
		}
	}
}

func TestARateCanBeText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]requeue.Rate{
		"10/s":      {Jobs: 10, Per: time.Second},
		"100/1m":    {Jobs: 100, Per: time.Minute},
		" 5 / 2 h ": {Jobs: 5, Per: 2 * time.Hour},
		"1/d":       {Jobs: 1, Per: 24 * time.Hour},
		"3/100ms":   {Jobs: 3, Per: 100 * time.Millisecond},
	} {
		got, err := requeue.ParseRate(text)
		if err != nil || got != want {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10", "/s", "10/", "s/10", "1.5/s", "-1/s", "10/s/s", "10/fortnight", "0/s", "10/0s"} {
		if got, err := requeue.ParseRate(text); err == nil || !strings.Contains(err.Error(), "'10/s'") {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
	// A program can read its settings from JSON.
	var settings struct{ Rate requeue.Rate }
	check(t, json.Unmarshal([]byte(`{"rate": "100/1m"}`), &settings))

	client, kind := newClient(t), newKind(t)
	set, err := client.SetKind(ctx, kind, requeue.SettingsChange{Rate: requeue.Set(settings.Rate)})
	check(t, err)
	if set.Rate == nil || set.Rate.Jobs != 100 || set.Rate.Per != time.Minute {
		t.Errorf("got %+v", set.Rate)
	}
}
