package requeue

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

const (
	defaultServer = "http://127.0.0.1:7654"
	// defaultTimeout limits one attempt at a request, apart from the time that it waits for jobs.
	defaultTimeout  = 30 * time.Second
	defaultRetryFor = 10 * time.Second
)

// Client sends requests to a requeue server. It is safe for concurrent use; create one and share it.
type Client struct {
	server   string
	token    string
	http     *http.Client
	codec    Codec
	timeout  time.Duration
	retryFor time.Duration
}

// Option configures a [Client].
type Option func(*Client)

// WithServer sets the URL of the server. The default is the environment variable REQUEUE_SERVER, or
// http://127.0.0.1:7654.
func WithServer(url string) Option { return func(c *Client) { c.server = url } }

// WithToken sets the token that authenticates requests. The default is the environment variable
// REQUEUE_TOKEN.
func WithToken(token string) Option { return func(c *Client) { c.token = token } }

// WithHTTPClient sets the HTTP client, for example for TLS certificates of your own. It must not
// repeat requests by itself, and must not have a timeout shorter than a minute, because requests wait
// for jobs.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.http = client } }

// WithCodec sets how bodies and results are encoded. The default is [JSON].
func WithCodec(codec Codec) Option { return func(c *Client) { c.codec = codec } }

// WithTimeout limits each attempt at a request, and must be positive. The default is 30 s. The time for
// which a claim waits for jobs is added to it.
func WithTimeout(timeout time.Duration) Option { return func(c *Client) { c.timeout = timeout } }

// WithRetryFor sets for how long a request is repeated if it was not done, or if its outcome is
// unknown and repeating it is harmless. The default is 10 s; 0 disables repetition.
func WithRetryFor(duration time.Duration) Option { return func(c *Client) { c.retryFor = duration } }

// New returns a client. It fails if an option is invalid; it does not connect.
func New(options ...Option) (*Client, error) {
	client := &Client{
		server:   defaultServer,
		token:    os.Getenv("REQUEUE_TOKEN"),
		codec:    JSON{},
		timeout:  defaultTimeout,
		retryFor: defaultRetryFor,
	}
	if server := os.Getenv("REQUEUE_SERVER"); server != "" {
		client.server = server
	}
	for _, option := range options {
		option(client)
	}
	if err := checkServer(client.server); err != nil {
		return nil, err
	}
	if !isToken(client.token) {
		// Without the token: errors are logged.
		return nil, errors.New("requeue: the token contains white space, or a character that a token cannot have")
	}
	if client.timeout <= 0 {
		return nil, fmt.Errorf("requeue: the timeout %v is not positive", client.timeout)
	}
	client.server = strings.TrimRight(client.server, "/")
	if client.http == nil {
		client.http = newHTTPClient()
	}
	return client, nil
}

// checkServer fails if a text is not the URL of a server.
func checkServer(server string) error {
	parsed, err := url.Parse(server)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		// What follows the last slash or @ contains no password.
		host := server[strings.LastIndexAny(server, "/@")+1:]
		if strings.Contains(server, "@") {
			server = "…@" + host
		}
		if host == "" {
			host = "127.0.0.1:7654"
		}
		return fmt.Errorf("requeue: the URL of the server is %q; it must begin with http:// or https:// and a host, such as %q",
			server, "http://"+host)
	}
	switch {
	case parsed.User != nil:
		return errors.New("requeue: the URL of the server contains a user name; pass a token instead")
	case strings.ContainsAny(server, "?#"):
		return fmt.Errorf("requeue: the URL of the server is %q; it must end before '?' and '#'", server)
	}
	return nil
}

// isToken returns whether a header can contain the token as it is.
func isToken(token string) bool {
	return !strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' })
}

// newHTTPClient returns an HTTP client with connections of its own.
func newHTTPClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:       http.ProxyFromEnvironment,
			DialContext: (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			// A worker uses three connections. Producers of a busy program should not have to open a
			// connection for each request: net/http keeps only two by default.
			MaxIdleConnsPerHost: 64,
			// The server closes connections that were idle for 75 s. A request that meets such an end has
			// an unknown outcome, so connections are closed before.
			IdleConnTimeout:     60 * time.Second,
			TLSHandshakeTimeout: 5 * time.Second,
		},
		// A redirect would repeat the request, or turn it into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
