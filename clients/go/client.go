package requeue

import (
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
	parsed, err := url.Parse(client.server)
	if err != nil || parsed.Host == "" || (parsed.Scheme != "http" && parsed.Scheme != "https") {
		return nil, fmt.Errorf("requeue: %q is not the URL of a server, such as %s", client.server, defaultServer)
	}
	if client.timeout <= 0 {
		return nil, fmt.Errorf("requeue: the timeout %v is not positive", client.timeout)
	}
	client.server = strings.TrimSuffix(client.server, "/")
	if client.http == nil {
		client.http = newHTTPClient()
	}
	return client, nil
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
