package requeue

import (
	"strings"
	"testing"
	"time"
)

// taken returns the sizes of the batches in which a settler settles jobs.
func taken(jobs ...*Job) (sizes []int) {
	s := newSettler(&run{options: &WorkerOptions{Lease: time.Minute}})
	for _, job := range jobs {
		s.add(&unsettled{job: job, ending: ending{settlement: Settlement{Job: job, Verb: VerbAck}}})
	}
	s.close()
	for {
		batch, _, over := s.take(time.Now())
		if over {
			return sizes
		}
		sizes = append(sizes, len(batch))
	}
}

func TestJobsThatEndTogetherAreSettledInBatchesOfAThousand(t *testing.T) {
	jobs := make([]*Job, 2500)
	for i := range jobs {
		jobs[i] = &Job{}
	}
	if sizes := taken(jobs...); len(sizes) != 3 || sizes[0] != 1000 || sizes[1] != 1000 || sizes[2] != 500 {
		t.Errorf("got %v", sizes)
	}
}

func TestTheResultsOfABatchAreLimited(t *testing.T) {
	jobs := make([]*Job, 300)
	for i := range jobs {
		jobs[i] = &Job{}
		if err := jobs[i].SetResult(Text(strings.Repeat("x", maxResult))); err != nil {
			t.Fatal(err)
		}
	}
	if sizes := taken(jobs...); len(sizes) != 3 || sizes[0] != 128 || sizes[1] != 128 {
		t.Errorf("got %v", sizes)
	}
}

func TestASettlementThatIsRepeatedWaits(t *testing.T) {
	s := newSettler(&run{options: &WorkerOptions{Lease: time.Minute}})
	now := time.Now()
	u := &unsettled{job: &Job{}, until: now.Add(time.Minute), ending: ending{settlement: Settlement{Job: &Job{}}}}
	busy := SettleResult{Err: &Problem{Name: ErrBusy, Status: 503}}
	for _, pause := range []time.Duration{firstPause, 2 * firstPause, 4 * firstPause, 8 * firstPause, maxPause} {
		if !s.conclude(u, busy, true, now) || u.pause != pause {
			t.Errorf("the pause is %v instead of %v", u.pause, pause)
		}
	}
	s.repeated = []*unsettled{u}
	if batch, next, _ := s.take(now); len(batch) != 0 || !next.Equal(u.again) {
		t.Errorf("got %v, %v", batch, next)
	}
	if batch, _, _ := s.take(u.again); len(batch) != 1 {
		t.Error("the settlement is not repeated")
	}
}
