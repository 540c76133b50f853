package requeue

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestDurationsOfResponsesAreParsed(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0s": 0, "1.5s": 1500 * time.Millisecond, "250ms": 250 * time.Millisecond, "1h30m": 90 * time.Minute,
		"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "1w2d3h": (9*24 + 3) * time.Hour, "3660d": 3660 * 24 * time.Hour,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "5", "-1s", "d", "1dd", "999999999w", "1d-1s", "106751d100000h"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestDurationsOfRequestsAreRoundedUpToMilliseconds(t *testing.T) {
	for duration, want := range map[time.Duration]string{
		0: "0s", time.Nanosecond: "1ms", 1500 * time.Millisecond: "1500ms", 90 * time.Minute: "5400s", -time.Second: "-1s",
	} {
		if got := formatDuration(duration); got != want {
			t.Errorf("%v: %q", duration, got)
		}
	}
}

func FuzzDurations(f *testing.F) {
	for _, seed := range []string{"1h30m", "7d", "1w2d", "1.5s", "", "d", "9999999999999999999d"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		duration, err := parseDuration(text)
		if err == nil && duration < 0 {
			t.Errorf("%q is %v", text, duration)
		}
	})
}

func FuzzResponses(f *testing.F) {
	for _, seed := range []string{
		`{"receipt":"r","kind":"k","id":"i","body":null,"content_type":"application/json","due":"2026-12-01T09:00:00.000Z"}`,
		`{"kind":"k","body_base64":"AAE=","lease":{"worker":"w"},"next":{"body_text":"x"},"done":{"result":{"body":1}}}`,
		`{"cron":"0 6 * * *","jitter":"1m","next_times":["2026-12-01T09:00:00.000Z"]}`,
		`{"lease":"30s","backoff":{"base":"1s"},"rate":{"jobs":1,"per":"1m"},"push":{"url":"u","timeout":"10s"}}`,
		`{"type":"/v1/problems/invalid","status":422,"value":"4000d","limit":7}`,
		`{"result":"retry","at":"2026-12-01T09:00:00.000Z"}`, `[]`, `{"body_base64":"!"}`, `{"at":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var claimed Job
		if json.Unmarshal(data, &claimed) == nil {
			var value any
			_ = claimed.Decode(&value)
		}
		for _, target := range []any{
			&JobInfo{}, &ScheduleInfo{}, &Settings{}, &Problem{}, &settleEntry{}, &putEntry{}, &UpcomingCounts{}, &KindInfo{},
		} {
			_ = json.Unmarshal(data, target)
		}
	})
}

func TestEachEndOfAHandlerDecidesHowItsJobIsSettled(t *testing.T) {
	job := &Job{Receipt: "r"}
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		stop, err error
		verb      Verb
		delay     time.Duration
		text      string
	}{
		"success":                       {nil, nil, VerbAck, -1, ""},
		"failure":                       {nil, boom, VerbRetry, -1, "boom"},
		"failure without a text":        {nil, errors.New(""), VerbRetry, -1, "*errors.errorString"},
		"give up, wrapped":              {nil, errors.Join(GiveUp("no use")), VerbBury, -1, "no use"},
		"retry after":                   {nil, RetryAfter(time.Minute, boom), VerbRetry, time.Minute, "boom"},
		"requeue after":                 {nil, RequeueAfter(time.Minute), VerbRequeue, time.Minute, ""},
		"cancelled, with success":       {ErrCancelled, nil, VerbAck, -1, ""},
		"cancelled, with failure":       {ErrCancelled, boom, VerbAck, -1, ""},
		"timeout, with success":         {ErrTimeout, nil, VerbRetry, -1, "timed out after 1s"},
		"shutdown, with success":        {ErrShutdown, nil, VerbAck, -1, ""},
		"shutdown, with failure":        {ErrShutdown, boom, VerbRetry, -1, "boom"},
		"shutdown, because it was told": {ErrShutdown, ErrShutdown, VerbRetry, 0, "the worker was shut down"},
	} {
		settlement := decide(job, test.stop, time.Second, test.err).settlement
		delay := time.Duration(-1)
		if settlement.Delay != nil {
			delay = *settlement.Delay
		}
		if settlement.Verb != test.verb || delay != test.delay || settlement.Error != test.text || settlement.Job.Receipt != "r" {
			t.Errorf("%s: %+v", name, settlement)
		}
	}
}

func TestErrorsAreCutAtACharacter(t *testing.T) {
	text := cut(strings.Repeat("ü", 2000), maxError-1)
	if len(text) != maxError-2 || !utf8.ValidString(text) {
		t.Errorf("%d bytes", len(text))
	}
}
