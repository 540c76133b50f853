package requeue

import (
	"fmt"
	"strconv"
	"strings"
)

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
