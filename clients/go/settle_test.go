package requeue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestEachVerbSettlesAJob(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	_, err := client.ChangeKind(ctx, kind, requeue.SettingsChange{KeepDone: requeue.Set(requeue.KeepDone{})})
	check(t, err)
	verbs := map[string]func(*requeue.Job) (requeue.SettleResult, error){
		"ack": func(job *requeue.Job) (requeue.SettleResult, error) {
			check(t, job.SetResult(order{1, "done"}))
			return client.Ack(ctx, job)
		},
		"bury": func(job *requeue.Job) (requeue.SettleResult, error) { return client.Bury(ctx, job, "no use") },
		"extend": func(job *requeue.Job) (requeue.SettleResult, error) {
			return client.Extend(ctx, job, time.Hour)
		},
		"release": func(job *requeue.Job) (requeue.SettleResult, error) { return client.Release(ctx, job) },
		"requeue": func(job *requeue.Job) (requeue.SettleResult, error) { return client.Requeue(ctx, job, time.Hour) },
		"retry":   func(job *requeue.Job) (requeue.SettleResult, error) { return client.Retry(ctx, job, "failed") },
		"retry after": func(job *requeue.Job) (requeue.SettleResult, error) {
			return client.RetryAfter(ctx, job, time.Hour, "failed")
		},
	}
	for id := range verbs {
		put(t, client, kind, id, nil)
	}
	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}, Max: 10, Worker: "w", Lease: time.Minute, Wait: time.Second})
	check(t, err)
	want := map[string]struct {
		outcome requeue.SettleOutcome
		state   requeue.State
	}{
		"ack": {requeue.SettledDone, requeue.StateDone}, "bury": {requeue.SettledDead, requeue.StateDead},
		"extend": {requeue.SettledExtended, requeue.StateLeased}, "release": {requeue.SettledReleased, requeue.StateReady},
		"requeue": {requeue.SettledDone, requeue.StateWaiting}, "retry": {requeue.SettledRetry, ""},
		"retry after": {requeue.SettledRetry, requeue.StateWaiting},
	}
	for _, job := range claimed.Jobs {
		if job.Attempt != 1 || job.Fence == 0 || job.LeaseEndsAt.IsZero() || job.CreatedAt.IsZero() {
			t.Errorf("got %+v", job)
		}
		result, err := verbs[job.ID](job)
		if err != nil || result.Outcome != want[job.ID].outcome {
			t.Errorf("%s: %+v, %v", job.ID, result, err)
		}
		info, err := client.Get(ctx, kind, job.ID)
		check(t, err)
		if state := want[job.ID].state; state != "" && info.State != state {
			t.Errorf("%s: the job is %s", job.ID, info.State)
		}
		switch job.ID {
		case "ack":
			var got order
			check(t, info.Done.Result.Decode(requeue.JSON{}, &got))
			if got != (order{1, "done"}) || info.Done.Worker != "w" {
				t.Errorf("done: %+v", info.Done)
			}
		case "extend":
			if info.Lease.Worker != "w" || !info.Lease.EndsAt.Equal(result.At) {
				t.Errorf("lease: %+v", info.Lease)
			}
		case "bury":
			if info.Failures[0].Error != "no use" || info.DiedAt.IsZero() || info.Deaths != 1 {
				t.Errorf("dead: %+v", info)
			}
		}
	}
	if len(claimed.Jobs) != len(verbs) {
		t.Errorf("%d jobs were claimed", len(claimed.Jobs))
	}
}

func TestASecondAckFailsBecauseTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	check(t, err)
	job := claimed.Jobs[0]
	_, err = client.Ack(ctx, job)
	check(t, err)
	if _, err = client.Ack(ctx, job); !errors.Is(err, requeue.ErrLeaseLost) {
		t.Errorf("the error is %v", err)
	}
	results, err := client.Settle(ctx, []requeue.Settlement{{Job: job, Verb: requeue.VerbRelease}})
	if err != nil || !errors.Is(results[0].Err, requeue.ErrLeaseLost) {
		t.Errorf("got %+v, %v", results, err)
	}
}

func TestAResultThatIsTooLargeIsRejectedWhenItIsSet(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	check(t, err)
	if err = claimed.Jobs[0].SetResult(strings.Repeat("x", 64<<10)); !errors.Is(err, requeue.ErrInvalid) {
		t.Errorf("the error is %v", err)
	}
}

func TestWaitReturnsWhenAJobIsReady(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	over := make(chan error, 1)
	go func() { over <- client.Wait(ctx, []string{kind}, time.Minute) }()
	put(t, client, kind, "a", nil)
	check(t, receive(t, "the end of the wait", over))
}

func TestAnInterruptedWaitReturnsTheErrorOfTheContext(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan error, 1)
	go func() { over <- client.Wait(ctx, []string{kind}, time.Minute) }()
	cancel()
	if err := receive(t, "the end of the wait", over); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestTheSuccessorOfALeasedJobIsShown(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", 1)
	_, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	check(t, err)
	result, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Body: 2, Priority: 4})
	check(t, err)
	job, err := client.Get(ctx, kind, "a")
	check(t, err)
	if result.Outcome != requeue.Coalesced || string(job.Next.Body.Data) != "2" || job.Next.Generation != result.Generation || job.Next.Priority != 4 {
		t.Errorf("got %+v", job.Next)
	}
	outcome, err := client.Cancel(ctx, kind, "a")
	if err != nil || outcome != requeue.ChangedEnding {
		t.Errorf("got %s, %v", outcome, err)
	}
}
