package requeue

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// request describes a request to the server.
type request struct {
	method string
	path   target
	query  url.Values
	// body is encoded as JSON, unless it is nil.
	body any
	// wait is how long the server may wait before it responds.
	wait time.Duration
	// repeatable means that the request is harmless if it was done before, so that it is repeated if
	// the outcome is unknown.
	repeatable bool
}

// do sends a request, repeats it as its class permits, and decodes the response into result, unless
// that is nil. A result with a method failure contains the problem of its only entry. If the outcome of an attempt is unknown, a later one that was not done, or was rejected,
// does not change that: the job that is absent now may have been rescheduled before. So the error is
// that of the former.
func (c *Client) do(ctx context.Context, r request, result any) error {
	if r.path.err != nil {
		return r.path.err
	}
	body, err := encodeRequest(r.body)
	if err != nil {
		return err
	}
	began := time.Now()
	var unknown error
	for pause := firstPause; ; pause *= 2 {
		err := c.attempt(ctx, r, body, result)
		isUnknown := errors.Is(err, ErrOutcomeUnknown)
		again := errors.Is(err, ErrNotDone) || (r.repeatable && isUnknown)
		if !again {
			if err != nil && unknown != nil && r.method != http.MethodGet {
				return fmt.Errorf("%w; it was repeated, and then rejected: %v", unknown, err)
			}
			return err
		}
		if isUnknown {
			unknown = err
		}
		next := vary(pause)
		if problem := (*Problem)(nil); errors.As(err, &problem) {
			next = max(next, problem.RetryAfter)
		}
		if time.Since(began)+next > c.retryFor || sleep(ctx, next) != nil {
			return cmp.Or(unknown, err)
		}
	}
}

// firstPause is the pause before a request is repeated for the first time. It doubles each time.
const firstPause = 100 * time.Millisecond

// vary returns between three quarters of a pause and five quarters of it, so that clients that failed
// together do not repeat their requests together.
func vary(pause time.Duration) time.Duration {
	return pause*3/4 + rand.N(pause/2)
}

func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func encodeRequest(body any) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	data, err := JSON{}.Encode(body)
	if err != nil {
		return nil, fmt.Errorf("requeue: encode the request: %w", err)
	}
	return data, nil
}

// attempt sends a request once.
//
// net/http repeats some requests by itself when a reused connection turns out to be closed. That is
// harmless here: it repeats a request with a method other than GET only if it has written nothing of
// it, because no request has an Idempotency-Key header. So a put or a claim is sent at most once per
// attempt.
func (c *Client) attempt(ctx context.Context, r request, body []byte, result any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout+r.wait, errTimeout)
	defer cancel()
	if ctx.Err() != nil {
		return &connectionError{ErrNotDone, "nothing was sent to " + c.server, ctx.Err()}
	}
	// While net/http waits for a connection, nothing of the request was sent. It begins again with
	// GetConn if it repeats the request.
	var connecting atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { connecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { connecting.Store(false) },
	})
	address := c.server + r.path.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	send, err := http.NewRequestWithContext(ctx, r.method, address, reader)
	if err != nil {
		return fmt.Errorf("requeue: %w", err)
	}
	if body != nil {
		send.Header.Set("Content-Type", jsonType)
	}
	if c.token != "" {
		send.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(send)
	if err != nil {
		if connecting.Load() {
			return &connectionError{ErrNotDone, "cannot connect to " + c.server, orCause(ctx, err)}
		}
		return &connectionError{ErrOutcomeUnknown, "no response from " + c.server, orCause(ctx, err)}
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		return readProblem(response)
	}
	if result == nil {
		// Read to the end, so that the connection can be used again.
		io.Copy(io.Discard, response.Body)
		return nil
	}
	data, err := io.ReadAll(response.Body)
	if err == nil {
		err = json.Unmarshal(data, result)
	}
	if err != nil {
		return &connectionError{ErrOutcomeUnknown, "cannot read the response of " + c.server, orCause(ctx, err)}
	}
	if failing, ok := result.(interface{ failure() error }); ok {
		return failing.failure()
	}
	return nil
}

var errTimeout = errors.New("the server did not respond in time")

// orCause returns the reason why the context has ended, if that is the timeout of the attempt. Otherwise
// it returns err, without the URL that net/http adds.
func orCause(ctx context.Context, err error) error {
	if context.Cause(ctx) == errTimeout {
		return errTimeout
	}
	if inner := (*url.Error)(nil); errors.As(err, &inner) {
		return inner.Err
	}
	return err
}

// connectionError is the failure of a request without a complete response.
type connectionError struct {
	class error
	// what says what failed, with the URL of the server.
	what  string
	cause error
}

func (e *connectionError) Error() string {
	return fmt.Sprintf("%v: %s: %v", e.class, e.what, e.cause)
}

func (e *connectionError) Unwrap() []error { return []error{e.class, e.cause} }

// joinPath returns the path of an API resource, with its parts percent-encoded.
func joinPath(parts []string) string {
	path := "/v1"
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}
