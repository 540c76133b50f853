package requeue

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ProblemName is the name of a type of problem, as in /v1/problems/NAME. Each name is an error that
// [errors.Is] finds in the [*Problem] of a response.
type ProblemName string

// Error returns the name.
func (n ProblemName) Error() string { return "requeue: " + string(n) }

// The classes of errors that do not mean that the request was rejected.
var (
	// ErrNotDone matches errors after which it is certain that nothing was done: status 503 and 408,
	// and no connection.
	ErrNotDone = errors.New("requeue: the request was not done")
	// ErrOutcomeUnknown matches errors after which the operation may have been done: status 504 and
	// 500, a broken connection, and a timeout.
	ErrOutcomeUnknown = errors.New("requeue: the outcome of the request is unknown")
)

// Problem is an error that the server reports, as problem details (RFC 9457).
type Problem struct {
	// Name is the name of the type of the problem. It is empty if the response is not from a requeue
	// server, for example because a proxy rejected the request.
	Name ProblemName
	// Title is a summary of the type.
	Title string
	// Detail describes what is wrong with this request.
	Detail string
	// Status is the HTTP status. For an entry of a batch, it is the status that the entry would have alone.
	Status int
	// Field is the field that is wrong, such as jobs[2].delay.
	Field string
	// Value is the value of the field, and Min and Limit are the lowest and the highest allowed value.
	// Each is a string, a float64 or nil, as in [encoding/json].
	Value, Min, Limit any
	// What is what the limit applies to.
	What string
	// Generation is the newest generation of the job, with [ErrExists] and [ErrOtherGeneration].
	Generation uint64
	// RetryAfter is how long to wait before the request is repeated, if the server specifies that.
	RetryAfter time.Duration
}

// Error returns the title and the detail.
func (p *Problem) Error() string {
	if p.Detail == "" {
		return fmt.Sprintf("requeue: %s (status %d)", p.Title, p.Status)
	}
	return fmt.Sprintf("requeue: %s: %s", p.Title, p.Detail)
}

// Is reports whether target is the name of the problem, or its class: [ErrNotDone] or
// [ErrOutcomeUnknown].
func (p *Problem) Is(target error) bool {
	switch target {
	case ErrNotDone:
		return p.Status == http.StatusServiceUnavailable || p.Status == http.StatusRequestTimeout
	case ErrOutcomeUnknown:
		return p.Status >= 500 && p.Status != http.StatusServiceUnavailable
	}
	return p.Name != "" && target == error(p.Name)
}

// UnmarshalJSON reads a problem document.
func (p *Problem) UnmarshalJSON(data []byte) error {
	var document struct {
		Type       string `json:"type"`
		Title      string `json:"title"`
		Detail     string `json:"detail"`
		Status     int    `json:"status"`
		Field      string `json:"field"`
		Value      any    `json:"value"`
		Min        any    `json:"min"`
		Limit      any    `json:"limit"`
		What       string `json:"what"`
		Generation uint64 `json:"generation"`
	}
	if err := json.Unmarshal(data, &document); err != nil {
		return err
	}
	*p = Problem{
		Name:       ProblemName(strings.TrimPrefix(document.Type, "/v1/problems/")),
		Title:      document.Title,
		Detail:     document.Detail,
		Status:     document.Status,
		Field:      document.Field,
		Value:      document.Value,
		Min:        document.Min,
		Limit:      document.Limit,
		What:       document.What,
		Generation: document.Generation,
	}
	return nil
}

// maxProblemSize limits how much of an error response is read. Problems of the server are smaller;
// what a proxy sends may be any page.
const maxProblemSize = 64 << 10

// readProblem returns the problem of a response with an error status. A response of a proxy, which is
// not a problem document, becomes a problem without a name.
func readProblem(response *http.Response) *Problem {
	problem := &Problem{}
	// If the body cannot be read, the status is still known.
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxProblemSize))
	mediaType, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if mediaType != "application/problem+json" || json.Unmarshal(body, problem) != nil {
		problem = &Problem{Title: "unexpected response: " + response.Status, Detail: excerpt(body)}
	}
	problem.Status = response.StatusCode
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		problem.RetryAfter = time.Duration(seconds) * time.Second
	}
	return problem
}

// invalid returns the problem of a value that is rejected before the request is sent.
func invalid(field, detail string) *Problem {
	return &Problem{
		Name: ErrInvalid, Title: "invalid request", Status: http.StatusUnprocessableEntity,
		Field: field, Detail: field + ": " + detail,
	}
}

func excerpt(body []byte) string {
	return cut(strings.ToValidUTF8(strings.TrimSpace(string(body)), ""), 200)
}
