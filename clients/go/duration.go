package requeue

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// formatDuration writes a duration as the API reads it. Fractions of a millisecond are rounded up, as
// the server does.
func formatDuration(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	millis := d / time.Millisecond
	if d%time.Millisecond > 0 {
		millis++
	}
	return strconv.FormatInt(int64(millis), 10) + "ms"
}

// formatTime writes a time as the API reads it.
func formatTime(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// parseDuration reads a duration of a response, such as 1h30m or 7d. The units of a day and a week are
// the only difference to [time.ParseDuration].
func parseDuration(text string) (time.Duration, error) {
	var total time.Duration
	rest := text
	for _, unit := range []struct {
		suffix string
		length time.Duration
	}{{"w", 7 * 24 * time.Hour}, {"d", 24 * time.Hour}} {
		number, after, found := strings.Cut(rest, unit.suffix)
		if !found {
			continue
		}
		count, err := strconv.ParseUint(number, 10, 32)
		if err != nil || time.Duration(count) > maxDuration/unit.length {
			return 0, fmt.Errorf("requeue: %q is not a duration", text)
		}
		total += time.Duration(count) * unit.length
		rest = after
	}
	if rest == "" && text != "" {
		return total, nil
	}
	small, err := time.ParseDuration(rest)
	if err != nil || small < 0 || small > maxDuration-total {
		return 0, fmt.Errorf("requeue: %q is not a duration", text)
	}
	return total + small, nil
}

const maxDuration = time.Duration(1<<63 - 1)

// wireDuration is a duration in a request or a response.
type wireDuration time.Duration

func (d wireDuration) MarshalText() ([]byte, error) {
	return []byte(formatDuration(time.Duration(d))), nil
}

func (d *wireDuration) UnmarshalText(text []byte) error {
	parsed, err := parseDuration(string(text))
	*d = wireDuration(parsed)
	return err
}

// cut shortens a text to at most size bytes, at the boundary of a character.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && text[size]&0xC0 == 0x80 {
		size--
	}
	return text[:size]
}
