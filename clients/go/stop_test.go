package requeue_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestLeasesThatAreDueTogetherAreExtendedInOneRequest(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	const count = 20
	var jobs []requeue.PutJob
	for i := range count {
		jobs = append(jobs, requeue.PutJob{Kind: kind, ID: fmt.Sprint(i)})
	}
	_, err := client.PutMany(ctx, jobs)
	check(t, err)
	extended := make(chan int, 100)
	proxy := startProxy(t, shared.url, func(r *http.Request) fault {
		if r.URL.Path == "/v1/settle" {
			body, _ := io.ReadAll(r.Body)
			extended <- strings.Count(string(body), `"how":"extend"`)
		}
		return pass
	})
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url)), requeue.WorkerOptions{
		Concurrency: count, Lease: 9 * time.Second, Grace: -1,
	})
	handler, _, _ := blocked()
	worker.Handle(kind, handler)
	runWorker(t, worker)
	if leases := receive(t, "the extension", extended); leases != count {
		t.Errorf("%d leases were extended", leases)
	}
}

// blocked returns a handler that reports when it starts and runs until it is stopped. It reports why.
func blocked() (handler requeue.HandlerFunc, started chan *requeue.Job, stopped chan error) {
	started, stopped = make(chan *requeue.Job, 100), make(chan error, 100)
	return func(ctx context.Context, job *requeue.Job) error {
		started <- job
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		return ctx.Err()
	}, started, stopped
}

func TestAHandlerWhoseLeaseIsLostIsStoppedAndItsResultDiscarded(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	record := &record{}
	options := record.options()
	options.Lease = 9 * time.Second
	worker := requeue.NewWorker(client, options)
	handler, started, stopped := blocked()
	worker.Handle(kind, handler)
	runWorker(t, worker)
	job := receive(t, "the start", started)
	// Another client ends the lease, so that the next extension reports that it is lost.
	_, err := client.Bury(ctx, job, "taken away")
	check(t, err)
	if reason := receive(t, "the stop", stopped); reason != requeue.ErrLeaseLost {
		t.Errorf("the reason is %v", reason)
	}
	eventually(t, "the job is reported", func() bool { return slices.Equal(record.lostJobs(), []string{"a"}) })
	if len(record.failedAttempts()) != 0 {
		t.Errorf("failed: %v", record.failedAttempts())
	}
}

func TestALeaseThatIsLostWhenTheJobIsSettledIsReported(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	record := &record{}
	worker := requeue.NewWorker(client, record.options())
	worker.Handle(kind, func(ctx context.Context, job *requeue.Job) error {
		_, err := client.Bury(ctx, job, "taken away")
		return err
	})
	runWorker(t, worker)
	eventually(t, "the job is reported", func() bool { return slices.Equal(record.lostJobs(), []string{"a"}) })
}

func TestAHandlerThatTimesOutIsRetriedWhenItHasReturned(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	_, err := client.ChangeKind(ctx, kind, requeue.SettingsChange{BackoffBase: requeue.Set(time.Hour), BackoffMax: requeue.Set(time.Hour)})
	check(t, err)
	put(t, client, kind, "a", nil)
	record := &record{}
	worker := requeue.NewWorker(client, record.options())
	stopped, proceed := make(chan error), make(chan struct{})
	worker.Handle(kind, func(ctx context.Context, job *requeue.Job) error {
		<-ctx.Done()
		stopped <- context.Cause(ctx)
		<-proceed
		return nil
	}, requeue.Timeout(50*time.Millisecond))
	runWorker(t, worker)
	if reason := receive(t, "the stop", stopped); reason != requeue.ErrTimeout {
		t.Errorf("the reason is %v", reason)
	}
	job, err := client.Get(ctx, kind, "a")
	if err != nil || job.State != requeue.StateLeased {
		t.Errorf("while the handler runs: %+v, %v", job, err)
	}
	close(proceed)
	eventually(t, "the attempt failed", func() bool {
		return slices.Equal(record.failedAttempts(), []failure{{"a", "timed out after 50ms", requeue.NextRetry}})
	})
}
