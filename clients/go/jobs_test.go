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
	for job, err := range client.List(ctx, kind, requeue.Filter{}, requeue.ByID) {
		check(t, err)
		got = append(got, job.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d jobs", len(got))
	}
	got = nil
	for job, err := range client.List(ctx, kind, requeue.Filter{Prefix: "02", State: requeue.StateReady}, "") {
		check(t, err)
		if got = append(got, job.ID); len(got) == 3 {
			break
		}
	}
	if !slices.Equal(got, []string{"0200", "0201", "0202"}) {
		t.Errorf("got %v", got)
	}
	errs := 0
	for job, err := range client.List(ctx, "not a kind", requeue.Filter{}, requeue.ByID) {
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

func TestListCountAndChangesUseAllFiltersAndOrders(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	for i, id := range []string{"c", "a", "b"} {
		_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: id, Delay: time.Duration(i+1) * time.Hour, Priority: i % 2})
		check(t, err)
	}
	for _, id := range []string{"timeout 1", "timeout 2", "other"} {
		put(t, client, kind, id, nil)
	}
	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}, Max: 10})
	check(t, err)
	for i, job := range claimed.Jobs {
		reason := "no such address"
		if job.ID != "other" {
			reason = fmt.Sprintf("timed out after %d s", i)
		}
		_, err = client.Bury(ctx, job, reason)
		check(t, err)
	}
	groups, err := client.ErrorGroups(ctx, kind)
	check(t, err)
	if len(groups.Groups) != 2 || groups.Scanned != 3 || groups.Other != 0 {
		t.Fatalf("got %+v", groups)
	}
	group := groups.Groups[0]
	if group.ErrorGroup != "timed out after * s" || group.Count != 2 || group.Example.Error == "" || group.LastDiedAt.Before(group.FirstDiedAt) {
		t.Errorf("got %+v", group)
	}

	for name, test := range map[string]struct {
		filter requeue.Filter
		order  requeue.Order
		want   []string
	}{
		"all":             {requeue.Filter{}, requeue.ByID, []string{"a", "b", "c", "other", "timeout 1", "timeout 2"}},
		"earliest":        {requeue.Filter{State: requeue.StateWaiting}, requeue.EarliestFirst, []string{"c", "a", "b"}},
		"newest":          {requeue.Filter{State: requeue.StateWaiting}, requeue.NewestFirst, []string{"b", "a", "c"}},
		"priority 0":      {requeue.Filter{Priority: requeue.Set(0), State: requeue.StateWaiting}, requeue.ByID, []string{"b", "c"}},
		"priority 1":      {requeue.Filter{Priority: requeue.Set(1)}, requeue.ByID, []string{"a"}},
		"group":           {requeue.Filter{ErrorGroup: group.ErrorGroup}, requeue.ByID, []string{"timeout 1", "timeout 2"}},
		"not expired":     {requeue.Filter{Expired: requeue.Set(false), State: requeue.StateDead}, requeue.ByID, []string{"other", "timeout 1", "timeout 2"}},
		"expired":         {requeue.Filter{Expired: requeue.Set(true)}, requeue.ByID, nil},
		"error":           {requeue.Filter{Error: "ADDRESS"}, requeue.ByID, []string{"other"}},
		"died long ago":   {requeue.Filter{DiedBefore: time.Now().Add(-time.Hour)}, requeue.ByID, nil},
		"prefix and more": {requeue.Filter{Prefix: "time", DiedBefore: time.Now().Add(time.Hour)}, requeue.ByID, []string{"timeout 1", "timeout 2"}},
	} {
		var got []string
		for job, err := range client.List(ctx, kind, test.filter, test.order) {
			check(t, err)
			got = append(got, job.ID)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v", name, got)
		}
		if count, err := client.Count(ctx, kind, test.filter); err != nil || count != uint64(len(test.want)) {
			t.Errorf("%s: the count is %d, %v", name, count, err)
		}
	}
	changed, err := client.ReviveAll(ctx, kind, requeue.Filter{ErrorGroup: group.ErrorGroup, Priority: requeue.Set(0)})
	if err != nil || changed.Changed != 2 {
		t.Errorf("got %+v, %v", changed, err)
	}
	for _, err := range client.List(ctx, kind, requeue.Filter{}, requeue.NewestFirst) {
		var problem *requeue.Problem
		if !errors.As(err, &problem) || problem.Field != "order" {
			t.Errorf("an order by time without a state: %v", err)
		}
	}
}

func TestARescheduleKeepsWhatIsNotSet(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	first, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "a", Body: order{1, "unpaid"}, Delay: time.Hour, Priority: 3})
	check(t, err)
	before, err := client.Get(ctx, kind, "a")
	check(t, err)
	get := func() *requeue.JobInfo {
		t.Helper()
		job, err := client.Get(ctx, kind, "a")
		check(t, err)
		return job
	}

	moved, err := client.Reschedule(ctx, kind, "a", requeue.Reschedule{Delay: requeue.Set(48 * time.Hour)})
	if err != nil || moved.Outcome != requeue.Updated || moved.Generation <= first.Generation {
		t.Errorf("got %+v, %v", moved, err)
	}
	job := get()
	if job.Due.Sub(before.Due) < 46*time.Hour || string(job.Body.Data) != string(before.Body.Data) || job.Priority != 3 {
		t.Errorf("got %+v", job)
	}
	due := job.Due
	_, err = client.Reschedule(ctx, kind, "a", requeue.Reschedule{
		Body: requeue.Set[any](requeue.Text("paid")), Priority: requeue.Set(0), IfGeneration: moved.Generation,
	})
	check(t, err)
	if job = get(); !job.Due.Equal(due) || string(job.Body.Data) != "paid" || job.Priority != 0 {
		t.Errorf("got %+v", job)
	}
	_, err = client.Reschedule(ctx, kind, "a", requeue.Reschedule{Due: requeue.Set(time.Now()), IfGeneration: moved.Generation})
	var problem *requeue.Problem
	if !errors.Is(err, requeue.ErrOtherGeneration) || !errors.As(err, &problem) || problem.Generation != job.Generation {
		t.Errorf("the error is %v", err)
	}
	_, err = client.Reschedule(ctx, kind, "a", requeue.Reschedule{Body: requeue.Set[any](nil), Delay: requeue.Set(time.Duration(0))})
	check(t, err)
	if job = get(); job.State != requeue.StateReady || len(job.Body.Data) != 0 || job.Body.ContentType != "application/octet-stream" {
		t.Errorf("got %+v", job)
	}

	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	check(t, err)
	successor, err := client.Reschedule(ctx, kind, "a", requeue.Reschedule{Delay: requeue.Set(time.Hour)})
	if job = get(); err != nil || successor.Outcome != requeue.Coalesced || job.Next == nil || job.Next.Generation != successor.Generation {
		t.Errorf("got %+v, %v, %+v", successor, err, job)
	}
	_, err = client.Bury(ctx, claimed.Jobs[0], "no")
	check(t, err)
	if _, err = client.Reschedule(ctx, kind, "nothing", requeue.Reschedule{Priority: requeue.Set(1)}); !errors.Is(err, requeue.ErrAbsent) {
		t.Errorf("the error is %v", err)
	}
}
