package requeue_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestAWorkerThatIsStoppedFinishesRunningJobsAndClaimsNoMore(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	worker := requeue.NewWorker(client, requeue.WorkerOptions{})
	started, proceed := make(chan struct{}), make(chan struct{})
	worker.Handle(kind, func(ctx context.Context, job *requeue.Job) error {
		started <- struct{}{}
		<-proceed
		return ctx.Err()
	})
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan int)
	go func() {
		stopped, err := worker.Run(ctx)
		if err != nil {
			t.Error(err)
		}
		over <- stopped
	}()
	receive(t, "the start", started)
	cancel()
	put(t, client, kind, "b", nil)
	close(proceed)
	if stopped := receive(t, "the end", over); stopped != 0 {
		t.Errorf("%d jobs were stopped", stopped)
	}
	if !isAbsent(t, client, kind, "a") || isAbsent(t, client, kind, "b") {
		t.Error("the wrong job was done")
	}
}

func TestAJobThatIsClaimedDuringTheShutdownIsReleased(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	claiming, proceed := make(chan struct{}), make(chan struct{})
	proxy := startProxy(t, shared.url, func(r *http.Request) fault {
		if r.URL.Path == "/v1/claim" {
			close(claiming)
			<-proceed
		}
		return pass
	})
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url)), requeue.WorkerOptions{})
	worker.Handle(kind, func(context.Context, *requeue.Job) error {
		t.Error("the job was started")
		return nil
	})
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan error)
	go func() {
		_, err := worker.Run(ctx)
		over <- err
	}()
	receive(t, "the claim", claiming)
	cancel()
	close(proceed)
	check(t, receive(t, "the end", over))
	job, err := client.Get(context.Background(), kind, "a")
	check(t, err)
	if job.State != requeue.StateReady || job.Attempts != 0 || proxy.count("/v1/settle") != 1 {
		t.Errorf("got %+v", job)
	}
}

func TestAfterTheGracePeriodHandlersAreStoppedAndTheirJobsRetried(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	record := &record{}
	options := record.options()
	options.Grace = 10 * time.Millisecond
	worker := requeue.NewWorker(client, options)
	handler, started, reasons := blocked()
	worker.Handle(kind, handler)
	stop := runWorker(t, worker)
	receive(t, "the start", started)
	if stopped := stop(); stopped != 1 {
		t.Errorf("%d jobs were stopped", stopped)
	}
	if reason := receive(t, "the stop", reasons); reason != requeue.ErrShutdown {
		t.Errorf("the reason is %v", reason)
	}
	job, err := client.Get(ctx, kind, "a")
	check(t, err)
	if job.State != requeue.StateReady || job.Attempts != 1 || job.Failures[0].Error != "the worker was shut down" {
		t.Errorf("got %+v", job)
	}
}

func TestAHandlerThatFinishesAfterItWasStoppedIsSettledAsUsual(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	worker := requeue.NewWorker(client, requeue.WorkerOptions{Grace: -1})
	started := make(chan struct{}, 1)
	worker.Handle(kind, func(ctx context.Context, job *requeue.Job) error {
		started <- struct{}{}
		<-ctx.Done()
		return nil
	})
	stop := runWorker(t, worker)
	receive(t, "the start", started)
	if stopped := stop(); stopped != 1 {
		t.Errorf("%d jobs were stopped", stopped)
	}
	if !isAbsent(t, client, kind, "a") {
		t.Error("the job was not acked")
	}
}

func TestAHandlerThatDoesNotReturnKeepsItsLeaseUntilItExpires(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	worker := requeue.NewWorker(client, requeue.WorkerOptions{Grace: -1})
	started, proceed := make(chan struct{}, 1), make(chan struct{})
	defer close(proceed)
	worker.Handle(kind, func(ctx context.Context, job *requeue.Job) error {
		started <- struct{}{}
		<-proceed
		return nil
	})
	stop := runWorker(t, worker)
	receive(t, "the start", started)
	if stopped := stop(); stopped != 1 {
		t.Errorf("%d jobs were stopped", stopped)
	}
	job, err := client.Get(ctx, kind, "a")
	check(t, err)
	if job.State != requeue.StateLeased {
		t.Errorf("got %+v", job)
	}
}

func TestAClaimThatHangsDoesNotPreventTheShutdown(t *testing.T) {
	t.Parallel()
	claiming, proceed := make(chan struct{}), make(chan struct{})
	proxy := startProxy(t, shared.url, func(r *http.Request) fault {
		close(claiming)
		<-proceed
		return pass
	})
	defer close(proceed)
	worker := requeue.NewWorker(newClient(t, requeue.WithServer(proxy.url), requeue.WithTimeout(time.Hour)), requeue.WorkerOptions{})
	worker.Handle(newKind(t), func(context.Context, *requeue.Job) error { return nil })
	stop := runWorker(t, worker)
	receive(t, "the claim", claiming)
	if stopped := stop(); stopped != 0 {
		t.Errorf("%d jobs were stopped", stopped)
	}
}
