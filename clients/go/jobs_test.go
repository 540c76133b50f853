package requeue_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestListReturnsTheJobsOfAllPages(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	var jobs []requeue.PutJob
	var want []string
	for i := range 450 {
		id := fmt.Sprintf("%04d", i)
		want = append(want, id)
		jobs = append(jobs, requeue.PutJob{Kind: kind, ID: id})
	}
	_, err := client.PutMany(ctx, jobs)
	check(t, err)

	var got []string
	for job, err := range client.List(ctx, kind, requeue.Filter{}) {
		check(t, err)
		got = append(got, job.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d jobs", len(got))
	}
	got = nil
	for job, err := range client.List(ctx, kind, requeue.Filter{Prefix: "02", State: requeue.StateReady}) {
		check(t, err)
		if got = append(got, job.ID); len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, []string{"0200", "0201", "0202"}) {
		t.Errorf("got %v", got)
	}
	errs := 0
	for job, err := range client.List(ctx, "not a kind", requeue.Filter{}) {
		if job != nil || !errors.Is(err, requeue.ErrInvalid) {
			t.Errorf("got %v, %v", job, err)
		}
		errs++
	}
	if errs != 1 {
		t.Errorf("got %d errors", errs)
	}
}

func TestJobsAreChangedOneByOneInBatchesAndByFilter(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: id, Delay: time.Hour})
		check(t, err)
	}
	outcome, err := client.RunNow(ctx, kind, "a")
	if err != nil || outcome != requeue.ChangedReady {
		t.Errorf("got %s, %v", outcome, err)
	}
	if _, err = client.Revive(ctx, kind, "a"); !errors.Is(err, requeue.ErrNotDead) {
		t.Errorf("the error is %v", err)
	}
	if _, err = client.Cancel(ctx, kind, "nothing"); !errors.Is(err, requeue.ErrAbsent) {
		t.Errorf("the error is %v", err)
	}
	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	check(t, err)
	if _, err = client.RunNow(ctx, kind, "a"); !errors.Is(err, requeue.ErrLeased) {
		t.Errorf("the error is %v", err)
	}
	_, err = client.Bury(ctx, claimed.Jobs[0], "no such ADDRESS")
	check(t, err)
	outcome, err = client.Revive(ctx, kind, "a")
	if err != nil || outcome != requeue.ChangedRevived {
		t.Errorf("got %s, %v", outcome, err)
	}

	results, err := client.CancelMany(ctx, kind, []string{"b", "nothing"})
	check(t, err)
	if results[0].Outcome != requeue.ChangedRemoved || !errors.Is(results[1].Err, requeue.ErrAbsent) {
		t.Errorf("got %+v", results)
	}
	results, err = client.RunNowMany(ctx, kind, []string{"c"})
	if err != nil || results[0].Outcome != requeue.ChangedReady {
		t.Errorf("got %+v, %v", results, err)
	}
	results, err = client.ReviveMany(ctx, kind, []string{"c"})
	if err != nil || !errors.Is(results[0].Err, requeue.ErrNotDead) {
		t.Errorf("got %+v, %v", results, err)
	}

	changes, err := client.RunNowAll(ctx, kind, requeue.Filter{State: requeue.StateWaiting})
	if err != nil || changes != (requeue.Changes{Matched: 2, Changed: 2}) {
		t.Errorf("got %+v, %v", changes, err)
	}
	changes, err = client.ReviveAll(ctx, kind, requeue.Filter{Error: "address", State: requeue.StateDead, DiedBefore: time.Now()})
	if err != nil || changes.Changed != 0 {
		t.Errorf("got %+v, %v", changes, err)
	}
	changes, err = client.CancelAll(ctx, kind, requeue.Filter{})
	if err != nil || changes.Changed != 4 {
		t.Errorf("got %+v, %v", changes, err)
	}
}
