package requeue

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// State is the state of a job.
type State string

// The states of a job.
const (
	// StateWaiting: the job is not due yet.
	StateWaiting State = "waiting"
	// StateReady: the job is due and can be claimed.
	StateReady State = "ready"
	// StateLeased: the job was claimed and is not settled yet.
	StateLeased State = "leased"
	// StateDead: the attempts of the job are used up, or it was buried.
	StateDead State = "dead"
	// StateDone: the job was acked, and its kind keeps done jobs.
	StateDone State = "done"
)

// JobInfo is a job as the server stores it.
type JobInfo struct {
	// Kind and ID identify the job.
	Kind, ID string
	// State is the state of the job.
	State State
	// Body is the body of the job. A done job has none.
	Body Body
	// Due is the time at which the job is, or was, due.
	Due time.Time
	// Priority is 0 to 9.
	Priority int
	// Generation identifies the put that the job results from.
	Generation uint64
	// Attempts is the number of failures since the attempts were last reset.
	Attempts int
	// Failures are the last five failed attempts.
	Failures []Failure
	// Deaths is how often the job has died.
	Deaths int
	// DiedAt is when the job died, if it is dead.
	DiedAt time.Time
	// Lease is the lease of a leased job, otherwise nil.
	Lease *LeaseInfo
	// Next is the successor of a leased job that was put again, otherwise nil.
	Next *Successor
	// Done describes how a done job was done, otherwise nil.
	Done *DoneInfo
	// CreatedAt is the time of the first put, and UpdatedAt that of the last change.
	CreatedAt, UpdatedAt time.Time
}

// Failure is a failed attempt.
type Failure struct {
	// Worker is the name of the worker.
	Worker string `json:"worker"`
	// StartedAt is when the job was claimed.
	StartedAt time.Time `json:"started_at"`
	// EndedAt is when the attempt failed.
	EndedAt time.Time `json:"ended_at"`
	// Error is why the attempt failed. It is empty if the lease expired.
	Error string `json:"error"`
}

// LeaseInfo is the lease of a leased job.
type LeaseInfo struct {
	// Worker is the name of the worker that holds the lease.
	Worker string `json:"worker"`
	// ClaimedAt is when the job was claimed.
	ClaimedAt time.Time `json:"claimed_at"`
	// EndsAt is when the lease expires.
	EndsAt time.Time `json:"ends_at"`
	// Cancelled is whether the job was cancelled since.
	Cancelled bool `json:"cancelled"`
}

// Successor is the put that runs after a leased job has ended.
type Successor struct {
	// Body is the body of the successor.
	Body Body
	// Due is when it is due, but not before the lease ends.
	Due time.Time
	// Generation is its generation.
	Generation uint64
	// Priority is 0 to 9.
	Priority int
}

// DoneInfo describes how a job was done.
type DoneInfo struct {
	// Worker is the name of the worker.
	Worker string
	// StartedAt is when the job was claimed, and DoneAt when it was acked.
	StartedAt, DoneAt time.Time
	// Result is the result of the ack, or nil if it had none.
	Result *Body
}

// Get returns a job. It fails with [ErrAbsent] if there is none.
func (c *Client) Get(ctx context.Context, kind, id string) (*JobInfo, error) {
	job := &JobInfo{}
	err := c.do(ctx, request{method: http.MethodGet, path: itemPath(kind, "jobs", id), repeatable: true}, job)
	if err != nil {
		return nil, err
	}
	return job, nil
}

// Filter selects the jobs of a kind that match every field. The zero Filter selects all.
type Filter struct {
	// State selects jobs in this state.
	State State
	// Prefix selects jobs whose id starts with this text.
	Prefix string
	// Priority selects jobs of exactly this priority, such as Set(0).
	Priority Field[int]
	// Error selects jobs whose last error contains this text; upper and lower case are equal.
	Error string
	// ErrorGroup selects jobs whose last error belongs to this group of [Client.ErrorGroups].
	ErrorGroup string
	// Expired selects jobs whose last attempt failed because its lease expired, with Set(true), or the
	// others, with Set(false).
	Expired Field[bool]
	// DiedBefore selects dead jobs that died before this time.
	DiedBefore time.Time
}

func (f Filter) fields() (changes, error) {
	fields := changes{}
	if f.State != "" {
		fields["state"] = f.State
	}
	if f.Prefix != "" {
		fields["prefix"] = f.Prefix
	}
	add(fields, "priority", f.Priority, asIs)
	if f.Error != "" {
		fields["error"] = f.Error
	}
	if f.ErrorGroup != "" {
		fields["error_group"] = f.ErrorGroup
	}
	add(fields, "expired", f.Expired, asIs)
	if !f.DiedBefore.IsZero() {
		fields["died_before"] = formatTime(f.DiedBefore)
	}
	return fields, fields.checkNoneIsUnset()
}

// query returns the filter as parameters of a query.
func (f Filter) query() (url.Values, error) {
	query := url.Values{}
	fields, err := f.fields()
	for name, value := range fields {
		query.Set(name, fmt.Sprint(value))
	}
	return query, err
}

// Order is the order of a list of jobs.
type Order string

// The orders of a list of jobs. The last two need a [Filter] with a State: waiting and ready jobs are
// ordered by their due time, leased jobs by the end of the lease, dead jobs by the time of death, and done
// jobs by the time of the ack.
const (
	// ByID: by id.
	ByID Order = "id"
	// EarliestFirst: by time, the earliest first.
	EarliestFirst Order = "time"
	// NewestFirst: by time, the latest first.
	NewestFirst Order = "newest"
)

// listPage is the number of jobs that List requests at a time.
const listPage = 200

// List returns the jobs of a kind that match the filter, in this order. It requests them page by page
// while the caller iterates. An error is returned as the last element, with a nil job.
func (c *Client) List(ctx context.Context, kind string, filter Filter, order Order) iter.Seq2[*JobInfo, error] {
	return func(yield func(*JobInfo, error) bool) {
		query, err := filter.query()
		if err != nil {
			yield(nil, err)
			return
		}
		query.Set("limit", strconv.Itoa(listPage))
		if order != "" {
			query.Set("order", string(order))
		}
		for {
			var page struct {
				Jobs   []*JobInfo `json:"jobs"`
				Cursor *string    `json:"cursor"`
			}
			err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind, "jobs"), query: query, repeatable: true}, &page)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, job := range page.Jobs {
				if !yield(job, nil) {
					return
				}
			}
			if page.Cursor == nil {
				return
			}
			query.Set("after", *page.Cursor)
		}
	}
}

// Count returns how many jobs [Client.List] returns with this filter. With a filter other than State, the
// server examines all jobs of the kind, 10,000 at a time.
func (c *Client) Count(ctx context.Context, kind string, filter Filter) (uint64, error) {
	query, err := filter.query()
	if err != nil {
		return 0, err
	}
	for total := uint64(0); ; {
		var part struct {
			Matched uint64  `json:"matched"`
			Cursor  *string `json:"cursor"`
		}
		err := c.do(ctx, request{method: http.MethodGet, path: kindPath(kind, "count"), query: query, repeatable: true}, &part)
		if err != nil {
			return 0, err
		}
		if total += part.Matched; part.Cursor == nil {
			return total, nil
		}
		query.Set("after", *part.Cursor)
	}
}

// UnmarshalJSON reads a job of a response.
func (j *JobInfo) UnmarshalJSON(data []byte) error {
	var wire struct {
		Kind  string `json:"kind"`
		ID    string `json:"id"`
		State State  `json:"state"`
		wireBody
		Due        time.Time  `json:"due"`
		Priority   int        `json:"priority"`
		Generation uint64     `json:"generation"`
		Attempts   int        `json:"attempts"`
		Failures   []Failure  `json:"failures"`
		Deaths     int        `json:"deaths"`
		DiedAt     time.Time  `json:"died_at"`
		Lease      *LeaseInfo `json:"lease"`
		Next       *Successor `json:"next"`
		Done       *DoneInfo  `json:"done"`
		CreatedAt  time.Time  `json:"created_at"`
		UpdatedAt  time.Time  `json:"updated_at"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	body, err := wire.wireBody.decode()
	*j = JobInfo{
		Kind: wire.Kind, ID: wire.ID, State: wire.State, Body: body, Due: wire.Due, Priority: wire.Priority,
		Generation: wire.Generation, Attempts: wire.Attempts, Failures: wire.Failures, Deaths: wire.Deaths,
		DiedAt: wire.DiedAt, Lease: wire.Lease, Next: wire.Next, Done: wire.Done,
		CreatedAt: wire.CreatedAt, UpdatedAt: wire.UpdatedAt,
	}
	return err
}

// UnmarshalJSON reads a successor of a response.
func (s *Successor) UnmarshalJSON(data []byte) error {
	var wire struct {
		wireBody
		Due        time.Time `json:"due"`
		Generation uint64    `json:"generation"`
		Priority   int       `json:"priority"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	body, err := wire.wireBody.decode()
	*s = Successor{Body: body, Due: wire.Due, Generation: wire.Generation, Priority: wire.Priority}
	return err
}

// UnmarshalJSON reads how a job of a response was done.
func (d *DoneInfo) UnmarshalJSON(data []byte) error {
	var wire struct {
		Worker    string    `json:"worker"`
		StartedAt time.Time `json:"started_at"`
		DoneAt    time.Time `json:"done_at"`
		Result    *wireBody `json:"result"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*d = DoneInfo{Worker: wire.Worker, StartedAt: wire.StartedAt, DoneAt: wire.DoneAt}
	if wire.Result == nil {
		return nil
	}
	result, err := wire.Result.decode()
	d.Result = &result
	return err
}
