package requeue

import (
	"context"
	"testing"
	"time"
)

// hold returns leases of 30 s with one job that was claimed at the time 0.
func hold() (l *leases, r *running, ctx context.Context, at func(seconds int) time.Time) {
	zero := time.Now()
	at = func(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }
	ctx, cancel := context.WithCancelCause(context.Background())
	l, r = newLeases(30*time.Second), &running{job: &Job{}, cancel: cancel}
	l.add(r, zero)
	return l, r, ctx, at
}

func TestALeaseIsExtendedAfterAThird(t *testing.T) {
	l, r, _, at := hold()
	if due, lost, next := l.check(at(9)); len(due)+len(lost) != 0 || !next.Equal(at(10)) {
		t.Errorf("%v, %v, %v", due, lost, next)
	}
	if due, _, _ := l.check(at(10)); len(due) != 1 {
		t.Error("the lease is not extended")
	}
	l.extended(r, at(10), at(11), SettledExtended, false)
	if due, _, next := l.check(at(18)); len(due) != 0 || !next.Equal(at(20)) {
		t.Errorf("%v, %v", due, next)
	}
}

func TestAFailedExtensionIsRepeatedAfterATenthUntilTheLeaseEnds(t *testing.T) {
	l, r, ctx, at := hold()
	l.extended(r, at(10), at(12), "", false)
	if due, _, next := l.check(at(13)); len(due) != 0 || !next.Equal(at(15)) {
		t.Errorf("%v, %v", due, next)
	}
	if due, _, _ := l.check(at(15)); len(due) != 1 {
		t.Error("the extension is not repeated")
	}
	if _, lost, next := l.check(at(29)); len(lost) != 0 || !next.Equal(at(30)) {
		t.Errorf("%v, %v", lost, next)
	}
	if _, lost, _ := l.check(at(30)); len(lost) != 1 || context.Cause(ctx) != ErrLeaseLost {
		t.Error("the lease has not ended")
	}
	if due, lost, _ := l.check(at(31)); len(due)+len(lost) != 0 {
		t.Error("a lost lease is extended or lost again")
	}
	if stopped, known := l.remove(r); stopped != ErrLeaseLost || !known {
		t.Errorf("%v, %v", stopped, known)
	}
}

func TestAnExtensionDoesNotAffectAJobThatHasEnded(t *testing.T) {
	l, r, ctx, at := hold()
	l.remove(r)
	if l.extended(r, at(10), at(11), "", true) || ctx.Err() != nil {
		t.Error("the job is reported as lost")
	}
}

func TestACancelledJobIsNotExtendedAgain(t *testing.T) {
	l, r, ctx, at := hold()
	l.extended(r, at(10), at(11), SettledCancelled, false)
	if due, lost, _ := l.check(at(60)); len(due)+len(lost) != 0 || context.Cause(ctx) != ErrCancelled {
		t.Error("the job is extended or lost")
	}
	if stopped, _ := l.remove(r); stopped != ErrCancelled {
		t.Errorf("%v", stopped)
	}
}

func TestAHandlerThatHasTimedOutKeepsItsLease(t *testing.T) {
	l, r, ctx, at := hold()
	l.stop(r, ErrTimeout)
	if due, _, _ := l.check(at(10)); len(due) != 1 || context.Cause(ctx) != ErrTimeout {
		t.Error("the lease is not extended")
	}
	l.stopAll(ErrShutdown)
	if stopped, _ := l.remove(r); stopped != ErrTimeout {
		t.Errorf("%v", stopped)
	}
}

func TestALostLeaseReplacesAnyOtherReason(t *testing.T) {
	l, r, _, at := hold()
	l.stop(r, ErrTimeout)
	if !l.extended(r, at(10), at(11), "", true) {
		t.Error("the job is not reported as lost")
	}
	if stopped, _ := l.remove(r); stopped != ErrLeaseLost {
		t.Errorf("%v", stopped)
	}
}
