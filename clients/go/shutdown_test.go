package requeue_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

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
