package requeue_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestARequestWithoutAConnectionIsNotDone(t *testing.T) {
	t.Parallel()
	client, err := requeue.New(requeue.WithServer(refusedAddress(t)), requeue.WithRetryFor(0))
	check(t, err)
	_, err = client.Put(ctx, requeue.PutJob{Kind: "kind", ID: "a", IfAbsent: true})
	if !errors.Is(err, requeue.ErrNotDone) || errors.Is(err, requeue.ErrOutcomeUnknown) {
		t.Errorf("the error is %v", err)
	}
}

func TestARequestThatWasNotDoneIsRepeatedEvenWithACondition(t *testing.T) {
	t.Parallel()
	kind := newKind(t)
	path := "/v1/kinds/" + kind + "/jobs/a"
	proxy := startProxy(t, shared.url, on(path, respondBusy, respondBusy))
	client := newClient(t, requeue.WithServer(proxy.url))
	result, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", IfAbsent: true})
	if err != nil || result.Outcome != requeue.Created || proxy.count(path) != 1 {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestRepetitionEndsWithTheLastError(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, shared.url, func(*http.Request) fault { return respondBusy })
	client := newClient(t, requeue.WithServer(proxy.url), requeue.WithRetryFor(300*time.Millisecond))
	_, err := client.Stats(ctx)
	if !errors.Is(err, requeue.ErrBusy) || !errors.Is(err, requeue.ErrNotDone) {
		t.Errorf("the error is %v", err)
	}
}

func TestARepetitionThatWasNotDoneDoesNotHideAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	kind := newKind(t)
	path := "/v1/kinds/" + kind + "/jobs/a"
	proxy := startProxy(t, shared.url, on(path, loseResponse, respondBusyForAnHour))
	client := newClient(t, requeue.WithServer(proxy.url))
	_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a"})
	if !errors.Is(err, requeue.ErrOutcomeUnknown) || errors.Is(err, requeue.ErrNotDone) {
		t.Errorf("the error is %v", err)
	}
}

// A repeated request is rejected because of what happened since the first one, whose effect nobody knows.
func TestARepetitionThatIsRejectedDoesNotHideAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	direct, kind := newClient(t), newKind(t)
	path := "/v1/kinds/" + kind + "/jobs/a"
	_, err := direct.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Delay: time.Hour})
	check(t, err)
	faults := on(path, loseResponse)
	proxy := startProxy(t, shared.url, func(r *http.Request) fault {
		fault := faults(r)
		if fault == pass && r.Method == http.MethodPatch {
			// The first request has made the job due, and a worker runs it.
			claimed, err := direct.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
			check(t, err)
			_, err = direct.Ack(ctx, claimed.Jobs[0])
			check(t, err)
		}
		return fault
	})
	client := newClient(t, requeue.WithServer(proxy.url))
	_, err = client.Reschedule(ctx, kind, "a", requeue.Reschedule{Delay: requeue.Set(time.Duration(0))})
	if !errors.Is(err, requeue.ErrOutcomeUnknown) || errors.Is(err, requeue.ErrAbsent) || proxy.count(path) != 2 {
		t.Errorf("the error is %v after %d requests", err, proxy.count(path))
	}
	if _, err = client.Get(ctx, kind, "a"); !errors.Is(err, requeue.ErrAbsent) {
		t.Errorf("get: the error is %v", err)
	}
}

func TestARepeatedAckThatIsRejectedIsUnknownAndARepeatedReadIsNot(t *testing.T) {
	t.Parallel()
	direct, kind := newClient(t), newKind(t)
	put(t, direct, kind, "a", nil)
	claimed, err := direct.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	check(t, err)
	lossy := newClient(t, requeue.WithServer(startProxy(t, shared.url, on("/v1/settle", loseResponse)).url))
	_, err = lossy.Ack(ctx, claimed.Jobs[0])
	if !errors.Is(err, requeue.ErrOutcomeUnknown) || errors.Is(err, requeue.ErrLeaseLost) {
		t.Errorf("the error is %v", err)
	}
	path := "/v1/kinds/" + kind + "/jobs/a"
	lossy = newClient(t, requeue.WithServer(startProxy(t, shared.url, on(path, loseResponse)).url))
	if _, err = lossy.Get(ctx, kind, "a"); !errors.Is(err, requeue.ErrAbsent) {
		t.Errorf("get: the error is %v", err)
	}
}

func TestARequestIsNotRepeatedBeforeTheTimeInRetryAfter(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, shared.url, on("/v1/stats", respondBusyForAnHour))
	client := newClient(t, requeue.WithServer(proxy.url))
	_, err := client.Stats(ctx)
	var problem *requeue.Problem
	if !errors.As(err, &problem) || problem.RetryAfter != time.Hour || proxy.count("/v1/stats") != 0 {
		t.Errorf("the error is %v", err)
	}
}

func TestRequestsThatAreHarmlessAreRepeatedIfTheResponseIsLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]fault{"lost": loseResponse, "cut": cutResponse} {
		t.Run(name, func(t *testing.T) {
			kind := newKind(t)
			path := "/v1/kinds/" + kind + "/jobs/a"
			proxy := startProxy(t, shared.url, on(path, fault, pass, fault))
			client := newClient(t, requeue.WithServer(proxy.url))
			result, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a"})
			if err != nil || result.Outcome != requeue.Updated || proxy.count(path) != 2 {
				t.Errorf("got %+v, %v, after %d requests", result, err, proxy.count(path))
			}
			job, err := client.Get(ctx, kind, "a")
			if err != nil || job.Generation != result.Generation || proxy.count(path) != 4 {
				t.Errorf("got %+v, %v, after %d requests", job, err, proxy.count(path))
			}
		})
	}
}

func TestOtherRequestsReportThatTheirOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	kind := newKind(t)
	job := "/v1/kinds/" + kind + "/jobs/a"
	direct := newClient(t)
	for name, test := range map[string]struct {
		path string
		call func(*requeue.Client) error
	}{
		"put with if_absent": {job, func(client *requeue.Client) error {
			_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", IfAbsent: true})
			return err
		}},
		"put many with if_new": {"/v1/put", func(client *requeue.Client) error {
			_, err := client.PutMany(ctx, []requeue.PutJob{{Kind: kind, ID: "b"}, {Kind: kind, ID: "a", IfNew: true}})
			return err
		}},
		"run now": {"/v1/kinds/" + kind + "/run-now", func(client *requeue.Client) error {
			_, err := client.RunNow(ctx, kind, "a")
			return err
		}},
		"claim": {"/v1/claim", func(client *requeue.Client) error {
			_, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
			return err
		}},
		"cancel": {job, func(client *requeue.Client) error {
			_, err := client.Cancel(ctx, kind, "a")
			return err
		}},
	} {
		proxy := startProxy(t, shared.url, on(test.path, loseResponse))
		err := test.call(newClient(t, requeue.WithServer(proxy.url)))
		if !errors.Is(err, requeue.ErrOutcomeUnknown) || errors.Is(err, requeue.ErrNotDone) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if count := proxy.count(test.path); count != 1 {
			t.Errorf("%s: %d requests", name, count)
		}
	}
	if isAbsent(t, direct, kind, "b") {
		t.Error("the put whose response was lost was not done")
	}
}

// net/http repeats requests on connections that turn out to be closed, but not those that change
// something, once it has written them.
func TestNoRequestIsSentTwiceOnAReusedConnection(t *testing.T) {
	t.Parallel()
	kind := newKind(t)
	path := "/v1/kinds/" + kind + "/jobs/a"
	proxy := startProxy(t, shared.url, on(path, pass, loseResponse))
	client := newClient(t, requeue.WithServer(proxy.url))
	put(t, client, kind, "a", nil)
	_, err := client.Cancel(ctx, kind, "a") // A DELETE without a body, on the connection of the put.
	if !errors.Is(err, requeue.ErrOutcomeUnknown) || proxy.count(path) != 2 {
		t.Errorf("got %v after %d requests", err, proxy.count(path))
	}
}

func TestATimeoutAfterTheRequestWasSentIsUnknown(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	proxy := startProxy(t, shared.url, func(*http.Request) fault { <-release; return pass })
	defer close(release)
	client := newClient(t, requeue.WithServer(proxy.url), requeue.WithTimeout(200*time.Millisecond), requeue.WithRetryFor(0))
	eventually(t, "the outcome is unknown", func() bool {
		_, err := client.Stats(ctx)
		// On a busy machine, the time may be over before there is a connection.
		return !errors.Is(err, requeue.ErrNotDone) && errors.Is(err, requeue.ErrOutcomeUnknown)
	})
}

type failingTransport struct{}

func (failingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("it does not report whether it was connected")
}

func TestAnErrorOfATransportThatDoesNotReportConnectionsIsUnknown(t *testing.T) {
	t.Parallel()
	client := newClient(t, requeue.WithHTTPClient(&http.Client{Transport: failingTransport{}}), requeue.WithRetryFor(0))
	if _, err := client.Stats(ctx); !errors.Is(err, requeue.ErrOutcomeUnknown) {
		t.Errorf("the error is %v", err)
	}
}

func TestARequestWhoseContextHasEndedIsNotDone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	_, err := newClient(t).Stats(ctx)
	if !errors.Is(err, requeue.ErrNotDone) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestACancelledContextEndsRepetition(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(ctx)
	proxy := startProxy(t, shared.url, func(*http.Request) fault { cancel(); return respondBusy })
	client := newClient(t, requeue.WithServer(proxy.url), requeue.WithRetryFor(time.Hour))
	_, err := client.Stats(ctx)
	if !errors.Is(err, requeue.ErrBusy) && !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestAResponseThatIsNotFromTheServerIsAProblemWithoutAName(t *testing.T) {
	t.Parallel()
	client, err := requeue.New(requeue.WithServer(shared.url + "/elsewhere"))
	check(t, err)
	_, err = client.Stats(ctx)
	if !errors.Is(err, requeue.ErrNoSuchPath) {
		t.Errorf("the error is %v", err)
	}
}
