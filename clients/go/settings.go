package requeue

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings are the settings of a kind.
type Settings struct {
	// Lease is the duration of a lease if a claim does not specify one.
	Lease time.Duration
	// Backoff is the delay before a failed job is due again.
	Backoff Backoff
	// MaxAttempts is the number of failures after which a job is dead.
	MaxAttempts int
	// Concurrency is the maximum number of leased jobs; 0 means no limit.
	Concurrency int
	// Rate limits how many jobs are claimed per time; nil means no limit.
	Rate *Rate
	// Ageing is the time after which a ready job gains a level of priority; 0 means never.
	Ageing time.Duration
	// Paused is whether no job of the kind is claimed.
	Paused bool
	// Retention is how long dead jobs are kept, and how many.
	Retention Retention
	// KeepDone is how long done jobs are kept, and how many; nil means none.
	KeepDone *Retention
	// Push is where the server sends the jobs; nil means that workers claim them.
	Push *Push
}

// Backoff is an exponential backoff with jitter.
type Backoff struct {
	// Base is the delay after the first failure. It doubles with each failure, up to Max.
	Base, Max time.Duration
	// JitterPercent is the largest random part by which a delay is reduced.
	JitterPercent int
}

// Rate limits how many jobs of a kind are claimed per time, over all workers.
type Rate struct {
	// Jobs is the number of jobs per Per.
	Jobs int
	// Per is the span of time.
	Per time.Duration
	// Burst is how many jobs may be claimed together after a pause. In a change, 0 means the default:
	// what the rate allows in 100 ms, at least 1.
	Burst int
}

// ParseRate reads a rate such as 10/s or 100/1m: jobs per time.
func ParseRate(text string) (Rate, error) {
	jobs, per, _ := strings.Cut(text, "/")
	per = strings.TrimSpace(per)
	if per != "" && (per[0] < '0' || per[0] > '9') {
		per = "1" + per
	}
	count, err := strconv.ParseUint(strings.TrimSpace(jobs), 10, 31)
	span, spanErr := parseDuration(strings.ReplaceAll(per, " ", ""))
	if err != nil || spanErr != nil || count == 0 || span == 0 {
		return Rate{}, fmt.Errorf("requeue: %q is not a rate: write jobs per time, such as '10/s' or '100/1m'", text)
	}
	return Rate{Jobs: int(count), Per: span}, nil
}

// UnmarshalText reads a rate as [ParseRate] does, for example from a configuration file.
func (r *Rate) UnmarshalText(text []byte) (err error) {
	*r, err = ParseRate(string(text))
	return err
}

// Retention is how long jobs are kept, and how many. In a change to KeepDone, 0 means the default.
type Retention struct {
	// Age is how long jobs are kept.
	Age time.Duration
	// Count is how many jobs are kept.
	Count int
}

// Push is where the server sends the jobs of a kind.
type Push struct {
	// URL is where the requests are sent.
	URL string
	// Headers are additional headers. The server does not return their values.
	Headers map[string]string
	// Timeout is how long a delivery may take.
	Timeout time.Duration
	// Concurrency is how many requests a node has in flight.
	Concurrency int
	// Secrets are the secrets with which requests are signed. The server returns only their ends.
	Secrets []string
	// Format is plain or cloudevents.
	Format string
}

// SettingsChange specifies settings of a kind. With [Client.SetKind], fields that are not set get their
// default. With [Client.ChangeKind], they stay as they are.
type SettingsChange struct {
	// Lease is the duration of a lease if a claim does not specify one.
	Lease Field[time.Duration]
	// BackoffBase, BackoffMax and JitterPercent are the fields of [Backoff].
	BackoffBase, BackoffMax Field[time.Duration]
	JitterPercent           Field[int]
	// MaxAttempts is the number of failures after which a job is dead.
	MaxAttempts Field[int]
	// Concurrency is the maximum number of leased jobs. [Unset] removes the limit.
	Concurrency Field[int]
	// Rate limits how many jobs are claimed per time. [Unset] removes the limit.
	Rate Field[Rate]
	// Ageing is the time after which a ready job gains a level of priority. [Unset] means never.
	Ageing Field[time.Duration]
	// Paused is whether no job of the kind is claimed.
	Paused Field[bool]
	// RetentionAge and RetentionCount are how long dead jobs are kept, and how many.
	RetentionAge   Field[time.Duration]
	RetentionCount Field[int]
	// KeepDone is how long done jobs are kept, and how many. [Unset] keeps none.
	KeepDone Field[Retention]
	// Push is where the server sends the jobs. [Unset] lets workers claim them.
	Push Field[PushChange]
}

// PushChange specifies where the server sends the jobs of a kind. Fields that are not set stay as they
// are with [Client.ChangeKind], and get their default with [Client.SetKind].
type PushChange struct {
	// URL is where the requests are sent. It is required, unless the kind has one.
	URL Field[string]
	// Headers are additional headers. With [Client.ChangeKind], headers that are not in the map stay.
	Headers Field[map[string]string]
	// Timeout is how long a delivery may take.
	Timeout Field[time.Duration]
	// Concurrency is how many requests a node has in flight.
	Concurrency Field[int]
	// Secrets are the secrets with which requests are signed, at most two.
	Secrets Field[[]string]
	// Format is plain or cloudevents.
	Format Field[string]
}

func (s SettingsChange) body() changes {
	body := changes{}
	add(body, "lease", s.Lease, asDuration)
	backoff := changes{}
	add(backoff, "base", s.BackoffBase, asDuration)
	add(backoff, "max", s.BackoffMax, asDuration)
	add(backoff, "jitter_percent", s.JitterPercent, asIs)
	if len(backoff) > 0 {
		body["backoff"] = backoff
	}
	add(body, "max_attempts", s.MaxAttempts, asIs)
	add(body, "concurrency", s.Concurrency, asIs)
	add(body, "rate", s.Rate, func(rate Rate) any {
		fields := changes{"jobs": rate.Jobs, "per": formatDuration(rate.Per)}
		if rate.Burst != 0 {
			fields["burst"] = rate.Burst
		}
		return fields
	})
	add(body, "ageing", s.Ageing, asDuration)
	add(body, "paused", s.Paused, asIs)
	retention := changes{}
	add(retention, "age", s.RetentionAge, asDuration)
	add(retention, "count", s.RetentionCount, asIs)
	if len(retention) > 0 {
		body["retention"] = retention
	}
	add(body, "keep_done", s.KeepDone, func(keep Retention) any {
		fields := changes{}
		if keep.Age != 0 {
			fields["for"] = formatDuration(keep.Age)
		}
		if keep.Count != 0 {
			fields["count"] = keep.Count
		}
		return fields
	})
	add(body, "push", s.Push, func(push PushChange) any { return push.body() })
	return body
}

func (p PushChange) body() changes {
	body := changes{}
	add(body, "url", p.URL, asIs)
	add(body, "headers", p.Headers, asIs)
	add(body, "timeout", p.Timeout, asDuration)
	add(body, "concurrency", p.Concurrency, asIs)
	add(body, "secrets", p.Secrets, asIs)
	add(body, "format", p.Format, asIs)
	return body
}

// UnmarshalJSON reads the settings of a response.
func (s *Settings) UnmarshalJSON(data []byte) error {
	var wire struct {
		Lease   wireDuration `json:"lease"`
		Backoff struct {
			Base          wireDuration `json:"base"`
			Max           wireDuration `json:"max"`
			JitterPercent int          `json:"jitter_percent"`
		} `json:"backoff"`
		MaxAttempts int `json:"max_attempts"`
		Concurrency int `json:"concurrency"`
		Rate        *struct {
			Jobs  int          `json:"jobs"`
			Per   wireDuration `json:"per"`
			Burst int          `json:"burst"`
		} `json:"rate"`
		Ageing    wireDuration `json:"ageing"`
		Paused    bool         `json:"paused"`
		Retention struct {
			Age   wireDuration `json:"age"`
			Count int          `json:"count"`
		} `json:"retention"`
		KeepDone *struct {
			For   wireDuration `json:"for"`
			Count int          `json:"count"`
		} `json:"keep_done"`
		Push *struct {
			URL         string            `json:"url"`
			Headers     map[string]string `json:"headers"`
			Timeout     wireDuration      `json:"timeout"`
			Concurrency int               `json:"concurrency"`
			Secrets     []string          `json:"secrets"`
			Format      string            `json:"format"`
		} `json:"push"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*s = Settings{
		Lease: time.Duration(wire.Lease),
		Backoff: Backoff{
			Base: time.Duration(wire.Backoff.Base), Max: time.Duration(wire.Backoff.Max),
			JitterPercent: wire.Backoff.JitterPercent,
		},
		MaxAttempts: wire.MaxAttempts, Concurrency: wire.Concurrency, Ageing: time.Duration(wire.Ageing),
		Paused:    wire.Paused,
		Retention: Retention{Age: time.Duration(wire.Retention.Age), Count: wire.Retention.Count},
	}
	if rate := wire.Rate; rate != nil {
		s.Rate = &Rate{Jobs: rate.Jobs, Per: time.Duration(rate.Per), Burst: rate.Burst}
	}
	if keep := wire.KeepDone; keep != nil {
		s.KeepDone = &Retention{Age: time.Duration(keep.For), Count: keep.Count}
	}
	if push := wire.Push; push != nil {
		s.Push = &Push{
			URL: push.URL, Headers: push.Headers, Timeout: time.Duration(push.Timeout),
			Concurrency: push.Concurrency, Secrets: push.Secrets, Format: push.Format,
		}
	}
	return nil
}
