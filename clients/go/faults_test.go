package requeue_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

// settledBy runs a worker with one job through a proxy with faults in its settlements, until done
// returns true. The handler returns err.
func settledBy(t *testing.T, err error, done func(*requeue.Client, string, *record) bool, faults ...fault) *record {
	t.Helper()
	direct, kind := newClient(t), newKind(t)
	put(t, direct, kind, "a", nil)
	proxy := startProxy(t, shared.url, on("/v1/settle", faults...))
	record := &record{}
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url)), record.options())
	var runs atomic.Int64
	worker.Handle(kind, func(context.Context, *requeue.Job) error {
		runs.Add(1)
		return err
	})
	stop := runWorker(t, worker)
	eventually(t, "the job is settled", func() bool { return done(direct, kind, record) })
	stop()
	if runs.Load() != 1 {
		t.Errorf("the job ran %d times", runs.Load())
	}
	return record
}

func acked(t *testing.T) func(*requeue.Client, string, *record) bool {
	return func(client *requeue.Client, kind string, _ *record) bool { return isAbsent(t, client, kind, "a") }
}

func TestAnAckThatTheServerRejectsTemporarilyIsRepeated(t *testing.T) {
	t.Parallel()
	record := settledBy(t, nil, acked(t), respondBusy, loseRequest, respondForbidden)
	if len(record.lostJobs()) != 0 || len(record.requestErrors()) != 3 {
		t.Errorf("lost: %v, errors: %v", record.lostJobs(), record.requestErrors())
	}
}

func TestAFailureWhoseResponseIsLostIsReportedAsUnknown(t *testing.T) {
	t.Parallel()
	record := settledBy(t, requeue.RetryAfter(time.Hour, errors.New("boom")), func(_ *requeue.Client, _ string, record *record) bool {
		return len(record.failedAttempts()) > 0
	}, loseResponse)
	if !slices.Equal(record.failedAttempts(), []failure{{"a", "boom", requeue.NextUnknown}}) || len(record.lostJobs()) != 0 {
		t.Errorf("failed: %v, lost: %v", record.failedAttempts(), record.lostJobs())
	}
}

func TestASettlementIsRepeatedForTheLengthOfALease(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	_, err := client.ChangeKind(ctx, kind, requeue.SettingsChange{MaxAttempts: requeue.Set(1)})
	check(t, err)
	put(t, client, kind, "a", nil)
	proxy := startProxy(t, shared.url, func(r *http.Request) fault {
		if r.URL.Path == "/v1/settle" {
			return respondBusy
		}
		return pass
	})
	record := &record{}
	options := record.options()
	options.Lease = time.Second
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url)), options)
	worker.Handle(kind, func(context.Context, *requeue.Job) error { return nil })
	runWorker(t, worker)
	eventually(t, "the worker gives up", func() bool { return slices.Equal(record.lostJobs(), []string{"a"}) })
}

func TestAClaimWhoseConnectionBreaksIsRepeated(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	proxy := startProxy(t, shared.url, on("/v1/claim", loseRequest, respondBusy))
	record := &record{}
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url)), record.options())
	worker.Handle(kind, func(context.Context, *requeue.Job) error { return nil })
	runWorker(t, worker)
	eventually(t, "the job is done", func() bool { return isAbsent(t, client, kind, "a") })
	if len(record.requestErrors()) != 2 {
		t.Errorf("errors: %v", record.requestErrors())
	}
}

func TestAWorkerWhoseFirstClaimIsRejectedStopsWithTheError(t *testing.T) {
	t.Parallel()
	proxy := startProxy(t, shared.url, on("/v1/claim", respondForbidden))
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url)), requeue.WorkerOptions{})
	worker.Handle(newKind(t), func(context.Context, *requeue.Job) error { return nil })
	if _, err := worker.Run(ctx); !errors.Is(err, requeue.ErrForbidden) {
		t.Errorf("the error is %v", err)
	}
}

func TestLaterRejectionsAreReportedAndTheClaimRepeated(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	proxy := startProxy(t, shared.url, on("/v1/claim", pass, respondForbidden))
	record := &record{}
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url)), record.options())
	worker.Handle(kind, func(context.Context, *requeue.Job) error { return nil })
	runWorker(t, worker)
	eventually(t, "the first job is done", func() bool { return isAbsent(t, client, kind, "a") })
	put(t, client, kind, "b", nil)
	eventually(t, "the second job is done", func() bool { return isAbsent(t, client, kind, "b") })
	if errs := record.requestErrors(); len(errs) != 1 || !errors.Is(errs[0], requeue.ErrForbidden) {
		t.Errorf("errors: %v", errs)
	}
}
