package requeue_test

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"requeue.invalid/requeue"
)

func TestSettingsAreSetChangedAndReset(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	settings, err := client.SetKind(ctx, kind, requeue.SettingsChange{
		Lease: requeue.Set(90 * time.Minute), BackoffBase: requeue.Set(1500 * time.Millisecond), BackoffJitterPercent: requeue.Set(0),
		MaxAttempts: requeue.Set(3), Concurrency: requeue.Set(5),
		Rate: requeue.Set(requeue.Rate{Jobs: 100, Per: time.Minute, Burst: 7}), Ageing: requeue.Set(time.Hour),
		RetentionAge: requeue.Set(24 * time.Hour), KeepDone: requeue.Set(requeue.KeepDone{For: 8 * 24 * time.Hour}),
	})
	check(t, err)
	want := requeue.Settings{
		Lease:       90 * time.Minute,
		Backoff:     requeue.Backoff{Base: 1500 * time.Millisecond, Max: time.Hour},
		MaxAttempts: 3, Concurrency: 5, Rate: &requeue.Rate{Jobs: 100, Per: time.Minute, Burst: 7}, Ageing: time.Hour,
		Retention: requeue.Retention{Age: 24 * time.Hour, Count: 100000},
		KeepDone:  &requeue.KeepDone{For: 8 * 24 * time.Hour, Count: 100000},
	}
	if !reflect.DeepEqual(*settings, want) {
		t.Errorf("got %+v", settings)
	}
	settings, err = client.ChangeKind(ctx, kind, requeue.SettingsChange{
		Concurrency: requeue.Unset[int](), Rate: requeue.Unset[requeue.Rate](), Ageing: requeue.Unset[time.Duration](),
		KeepDone: requeue.Unset[requeue.KeepDone](),
		Push: requeue.Set(requeue.PushChange{
			URL: requeue.Set("http://127.0.0.1:9/hook"), Headers: requeue.Set(map[string]string{"x-a": "b"}), Timeout: requeue.Set(time.Minute),
		}),
	})
	check(t, err)
	push := requeue.Push{URL: "http://127.0.0.1:9/hook", Headers: map[string]string{"x-a": "…"}, Timeout: time.Minute, Concurrency: 10, Secrets: []string{}, Format: "plain"}
	if settings.Concurrency != 0 || settings.Rate != nil || settings.Ageing != 0 || settings.KeepDone != nil || !reflect.DeepEqual(*settings.Push, push) {
		t.Errorf("got %+v, %+v", settings, settings.Push)
	}
	if _, err = client.Claim(ctx, requeue.Claim{Kinds: []string{kind}}); !errors.Is(err, requeue.ErrPushed) {
		t.Errorf("the error is %v", err)
	}
	settings, err = client.SetKind(ctx, kind, requeue.SettingsChange{})
	check(t, err)
	again, err := client.Settings(ctx, kind)
	check(t, err)
	if !reflect.DeepEqual(settings, again) || settings.Lease != 30*time.Second || settings.Push != nil {
		t.Errorf("got %+v and %+v", settings, again)
	}
}

func TestKindsAreCountedPausedAndDeleted(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	_, err := client.Put(ctx, requeue.PutJob{Kind: kind, ID: "b", Delay: 30 * time.Minute})
	check(t, err)
	check(t, client.Pause(ctx, kind))
	info, err := client.Kind(ctx, kind)
	check(t, err)
	if info.Pending != 2 || info.Ready != 1 || !info.Paused || info.OldestReady.IsZero() || info.Settings == nil {
		t.Errorf("got %+v", info)
	}
	claimed, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}})
	if err != nil || len(claimed.Jobs) != 0 {
		t.Errorf("got %+v, %v", claimed, err)
	}
	check(t, client.Resume(ctx, kind))
	kinds, err := client.Kinds(ctx)
	check(t, err)
	if !slices.ContainsFunc(kinds, func(k requeue.KindInfo) bool { return k.Kind == kind && !k.Paused && k.Pending == 2 }) {
		t.Errorf("got %+v", kinds)
	}
	upcoming, err := client.Upcoming(ctx, kind, requeue.Upcoming{From: time.Now(), Span: time.Hour, Count: 2})
	check(t, err)
	if upcoming.Span != time.Hour || !slices.Equal(upcoming.Counts, []uint64{1, 0}) {
		t.Errorf("got %+v", upcoming)
	}
	deleted, err := client.DeleteKind(ctx, kind)
	if err != nil || deleted.Removed != 2 {
		t.Errorf("got %+v, %v", deleted, err)
	}
}

func TestSchedulesAreSetChangedRunAndDeleted(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	schedule, err := client.SetSchedule(ctx, kind, "daily", requeue.Schedule{
		Cron: "0 6 * * *", TimeZone: "Europe/Berlin", Body: order{1, "report"}, Priority: 2, Jitter: time.Minute,
		Missed: requeue.MissedAll, CatchUp: 48 * time.Hour, Overlap: requeue.OverlapAllow,
		StartsAt: time.Now(), EndsAt: time.Now().Add(30 * 24 * time.Hour),
	})
	check(t, err)
	if schedule.Cron != "0 6 * * *" || schedule.Jitter != time.Minute || schedule.CatchUp != 48*time.Hour || schedule.Next.IsZero() ||
		len(schedule.NextTimes) != 5 || string(schedule.Body.Data) != `{"number":1,"note":"report"}` || schedule.EndsAt.IsZero() {
		t.Errorf("got %+v", schedule)
	}
	schedule, err = client.ChangeSchedule(ctx, kind, "daily", requeue.ScheduleChange{
		Paused: requeue.Set(true), Body: requeue.Set[any](requeue.Text("now text")), EndsAt: requeue.Unset[time.Time](), Priority: requeue.Set(0),
	})
	check(t, err)
	if !schedule.Paused || !schedule.Next.IsZero() || !schedule.EndsAt.IsZero() || schedule.Priority != 0 || string(schedule.Body.Data) != "now text" {
		t.Errorf("got %+v", schedule)
	}
	result, err := client.RunSchedule(ctx, kind, "daily")
	if err != nil || result.Outcome != requeue.Created {
		t.Errorf("got %+v, %v", result, err)
	}
	_, err = client.SetSchedule(ctx, kind, "often", requeue.Schedule{Every: 90 * time.Minute})
	check(t, err)
	schedules, err := client.Schedules(ctx, kind)
	if err != nil || len(schedules) != 2 || schedules[1].Every != 90*time.Minute {
		t.Errorf("got %+v, %v", schedules, err)
	}
	all, err := client.AllSchedules(ctx)
	check(t, err)
	all = slices.DeleteFunc(all, func(schedule *requeue.ScheduleInfo) bool { return schedule.Kind != kind })
	if !reflect.DeepEqual(all, schedules) {
		t.Errorf("got %+v", all)
	}
	schedule, err = client.ChangeSchedule(ctx, kind, "daily", requeue.ScheduleChange{Body: requeue.Set[any](nil)})
	if err != nil || len(schedule.Body.Data) != 0 {
		t.Errorf("got %+v, %v", schedule, err)
	}
	check(t, client.DeleteSchedule(ctx, kind, "daily"))
	if _, err = client.GetSchedule(ctx, kind, "daily"); !errors.Is(err, requeue.ErrAbsent) {
		t.Errorf("the error is %v", err)
	}
	if _, err = client.SetSchedule(ctx, kind, "never", requeue.Schedule{Cron: "0 0 31 2 *"}); !errors.Is(err, requeue.ErrInvalid) {
		t.Errorf("the error is %v", err)
	}
}

func TestStatsAndWorkersAreReported(t *testing.T) {
	t.Parallel()
	client, kind := newClient(t), newKind(t)
	put(t, client, kind, "a", nil)
	_, err := client.Claim(ctx, requeue.Claim{Kinds: []string{kind}, Worker: "worker of " + kind})
	check(t, err)
	stats, err := client.Stats(ctx)
	check(t, err)
	if stats.Version == "" || stats.Kinds == 0 || stats.Leased == 0 {
		t.Errorf("got %+v", stats)
	}
	workers, err := client.Workers(ctx)
	check(t, err)
	found := slices.ContainsFunc(workers, func(w requeue.WorkerInfo) bool {
		return w.Name == "worker of "+kind && w.Claimed == 1 && w.Held == 1 && !w.LastSeen.IsZero()
	})
	if !found {
		t.Errorf("got %+v", workers)
	}
}
