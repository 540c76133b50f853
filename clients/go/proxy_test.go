package requeue_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
)

// proxy forwards requests to a server and breaks connections as a test demands.
type proxy struct {
	url string

	mu      sync.Mutex
	backend string
	rule    func(*http.Request) fault
	// seen counts the requests that were forwarded, by path.
	seen map[string]int
}

// fault is what a proxy does with a request.
type fault int

const (
	// pass forwards request and response.
	pass fault = iota
	// loseRequest closes the connection without forwarding the request.
	loseRequest
	// loseResponse closes the connection when the server has responded.
	loseResponse
	// cutResponse closes the connection in the middle of the response.
	cutResponse
	// respondBusy responds with the problem busy, without forwarding the request.
	respondBusy
	// respondBusyForAnHour responds with the problem busy, and an hour in Retry-After.
	respondBusyForAnHour
	// respondForbidden responds with the problem forbidden, without forwarding the request.
	respondForbidden
)

// startProxy starts a proxy. rule decides about each request; it may block.
func startProxy(t *testing.T, backend string, rule func(*http.Request) fault) *proxy {
	t.Helper()
	p := &proxy{backend: backend, rule: rule, seen: map[string]int{}}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	p.url = server.URL
	return p
}

// on returns a rule for one path: the first requests get these faults, and all others pass.
func on(path string, faults ...fault) func(*http.Request) fault {
	var mu sync.Mutex
	return func(r *http.Request) fault {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path != path || len(faults) == 0 {
			return pass
		}
		fault := faults[0]
		faults = faults[1:]
		return fault
	}
}

// redirect changes the server.
func (p *proxy) redirect(backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = backend
}

// count returns how many requests for a path were forwarded.
func (p *proxy) count(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[path]
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	fault := p.rule(r)
	switch fault {
	case loseRequest:
		disconnect(w, nil)
		return
	case respondBusy:
		respond(w, http.StatusServiceUnavailable, "busy")
		return
	case respondBusyForAnHour:
		w.Header().Set("Retry-After", "3600")
		respond(w, http.StatusServiceUnavailable, "busy")
		return
	case respondForbidden:
		respond(w, http.StatusForbidden, "forbidden")
		return
	}
	p.mu.Lock()
	p.seen[r.URL.Path]++
	backend := p.backend
	p.mu.Unlock()
	forward, err := http.NewRequestWithContext(r.Context(), r.Method, backend+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		panic(err)
	}
	forward.Header = r.Header
	response, err := http.DefaultTransport.RoundTrip(forward)
	if err != nil {
		disconnect(w, nil)
		return
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	switch {
	case err != nil || fault == loseResponse:
		disconnect(w, nil)
	case fault == cutResponse:
		disconnect(w, []byte("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"))
	default:
		for name, values := range response.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(response.StatusCode)
		w.Write(content)
	}
}

func respond(w http.ResponseWriter, status int, problem string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	io.WriteString(w, `{"type":"/v1/problems/`+problem+`","title":"`+problem+`","status":0,"detail":"of the proxy"}`)
}

// disconnect closes the connection after these bytes.
func disconnect(w http.ResponseWriter, last []byte) {
	connection, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	connection.Write(last)
	connection.Close()
}

// refusedAddress returns the URL of a port on which nothing listens until the test ends: it is bound,
// so that no other test gets it.
func refusedAddress(t *testing.T) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	check(t, err)
	t.Cleanup(func() { syscall.Close(socket) })
	check(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	address, err := syscall.Getsockname(socket)
	check(t, err)
	return fmt.Sprintf("http://127.0.0.1:%d", address.(*syscall.SockaddrInet4).Port)
}
