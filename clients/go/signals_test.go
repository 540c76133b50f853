package requeue_test

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestTheFirstSignalLetsRunningJobsFinish(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		client, kind := newClient(t), newKind(t)
		put(t, client, kind, "a", nil)
		child := startChild(t, kind, "finish", time.Hour)
		child.expect(t, "start a")
		check(t, child.command.Process.Signal(signal))
		// The job would be claimed if the worker still claimed jobs. It is due when the child is gone.
		_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "finish", Delay: time.Hour})
		check(t, err)
		child.expect(t, "stopped 0")
		check(t, child.command.Wait())
		if !isAbsent(t, client, kind, "a") {
			t.Error("the job was not acked")
		}
	}
}

func TestTheSecondSignalStopsRunningJobs(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	child := startChild(t, kind, "stop", time.Hour)
	child.expect(t, "start a")
	check(t, child.command.Process.Signal(syscall.SIGTERM))
	// Another signal than the first: two of the same may become one.
	check(t, child.command.Process.Signal(syscall.SIGINT))
	child.expect(t, "stopped 1")
	job, err := client.Get(ctx, kind, "a")
	check(t, err)
	if job.State != requeue.StateReady || job.Attempts != 1 || job.Failures[0].Error != "the worker was shut down" {
		t.Errorf("got %+v", job)
	}
	var exit *exec.ExitError
	if err = child.command.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the child ended with %v", err)
	}
}

func TestTheThirdSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	child := startChild(t, kind, "ignore", time.Millisecond)
	child.expect(t, "start a")
	check(t, child.command.Process.Signal(syscall.SIGTERM))
	child.expect(t, "stop")
	over := make(chan error, 1)
	go func() { over <- child.command.Wait() }()
	for {
		select {
		case err := <-over:
			status := err.(*exec.ExitError).Sys().(syscall.WaitStatus)
			if !status.Signaled() && status.ExitStatus() != 1 {
				t.Errorf("the child ended with %v", err)
			}
			return
		case <-time.After(20 * time.Millisecond):
			child.command.Process.Signal(syscall.SIGTERM)
		}
	}
}

func TestTheJobOfAWorkerThatDiesRunsAgain(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	first := startChild(t, kind, "die", time.Hour)
	first.expect(t, "start a")
	check(t, first.command.Process.Kill())
	second := startChild(t, kind, "stop", time.Hour)
	second.expect(t, "start a")
	job, err := client.Get(ctx, kind, "a")
	check(t, err)
	if job.Attempts != 1 || job.Failures[0].Error != "" {
		t.Errorf("got %+v", job)
	}
}
