package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// The defaults of FetchOptions.
const (
	DefaultTimeout            = 30 * time.Second
	DefaultMaxBody      int64 = 64 << 20
	DefaultMaxRedirects       = 10
)

// FetchOptions configures a Fetcher. A zero member means its default. The caller must not change the options after
// use.
type FetchOptions struct {
	Timeout      time.Duration // from the request to the end of the body; default 30 s, negative: no limit
	MaxBody      int64         // bytes of a body after decompression; default 64 MiB, negative: no limit
	MaxRedirects int           // default 10, negative: a redirect is an error
	BlockPrivate bool          // refuses non-public addresses, also if the URL contains the address
	Resolver     *net.Resolver // default net.DefaultResolver
	TLS          *tls.Config   // default: the roots of the system
}

// Fetcher fetches http and https URLs within the authority of a job. Many goroutines may use it.
//
// It supports no proxy, no cookies, no CONNECT and no upgrade. It refuses link-local addresses, which
// clouds use for credentials, known metadata services, multicast and unspecified addresses, unless
// the URL contains the address.
type Fetcher struct {
	check     Check
	onRefusal RefusalFunc
	o         FetchOptions
	client    *http.Client
}

// NewFetcher returns a Fetcher with its own idle connections, which Close closes. The options apply to all
// Fetchers of For.
func NewFetcher(check Check, o FetchOptions) *Fetcher {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxBody == 0 {
		o.MaxBody = DefaultMaxBody
	}
	if o.MaxRedirects == 0 {
		o.MaxRedirects = DefaultMaxRedirects
	}
	return newFetcher(check, o, newTransport(o))
}

func newFetcher(check Check, o FetchOptions, t http.RoundTripper) *Fetcher {
	f := &Fetcher{check: check, o: o}
	f.client = &http.Client{Transport: t, CheckRedirect: f.redirect}
	return f
}

// For returns a Fetcher with another Check that shares the idle connections and the options of f.
func (f *Fetcher) For(check Check) *Fetcher { return newFetcher(check, f.o, f.client.Transport) }

// OnRefusal returns a copy of f that calls report for each operation that f itself refuses.
func (f *Fetcher) OnRefusal(report RefusalFunc) *Fetcher {
	g := f.For(f.check)
	g.onRefusal = report
	return g
}

// Close closes the idle connections, which all Fetchers of For share.
func (f *Fetcher) Close() { f.client.CloseIdleConnections() }

func newTransport(o FetchOptions) *http.Transport {
	return &http.Transport{
		DialContext:            o.dial,
		TLSClientConfig:        o.TLS.Clone(),
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           128, // shared by the Fetchers of many jobs
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: 1 << 20,
	}
}

// Get sends a GET request, as Do does.
func (f *Fetcher) Get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, malformed(withoutQuery(url), "this is not a URL")
	}
	return f.Do(req)
}

// Do sends a request. The job needs net.fetch of the URL and of the URL of each redirect. The caller must close the
// body. Reading the body fails with RESOURCE_EXHAUSTED beyond MaxBody, and at the end of ctx or
// Timeout.
//
// Do does not change the request. It sends the path without dot segments. Request.Host must be empty
// or the host of the URL. A redirect to another origin (scheme, host and port) does not receive
// Authorization and Cookie.
func (f *Fetcher) Do(req *http.Request) (*http.Response, error) {
	resp, err := f.do(req)
	if b, ok := errors.AsType[*blocked](err); ok {
		return nil, f.onRefusal.refuse(arcp.NamespaceNetFetch, b.err)
	}
	if wire, ok := errors.AsType[*arcp.Error](err); ok {
		return nil, wire
	}
	if at, ok := errors.AsType[*url.Error](err); ok {
		at.URL = withoutQuery(at.URL)
	}
	return resp, err
}

func (f *Fetcher) do(req *http.Request) (*http.Response, error) {
	own, err := f.admit(req)
	if err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a client always closes the body; the refusal is the result
		}
		return nil, err
	}
	cancel := context.CancelFunc(func() {})
	if f.o.Timeout > 0 {
		var ctx context.Context
		ctx, cancel = context.WithTimeout(own.Context(), f.o.Timeout)
		own = own.WithContext(ctx)
	}
	resp, err := f.client.Do(own)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &body{ReadCloser: resp.Body, cancel: cancel, limit: f.o.MaxBody, left: f.o.MaxBody}
	if err := f.acceptable(resp); err != nil {
		_ = resp.Body.Close() // the body is not used
		return nil, err
	}
	return resp, nil
}

func (f *Fetcher) acceptable(resp *http.Response) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return &blocked{arcp.Errorf(arcp.CodePermissionDenied, "%s switches the protocol", withoutSecrets(resp.Request.URL))}
	}
	if f.o.MaxBody >= 0 && resp.ContentLength > f.o.MaxBody && resp.Request.Method != http.MethodHead {
		return tooLarge("the body", f.o.MaxBody)
	}
	return nil
}

// admit checks a request and returns the request to send.
func (f *Fetcher) admit(req *http.Request) (*http.Request, error) {
	if req.URL == nil {
		return nil, malformed("", "the request has no URL")
	}
	own := req.Clone(req.Context())
	if own.Header == nil {
		own.Header = http.Header{}
	}
	own.URL = own.URL.ResolveReference(own.URL) // an absolute URL loses its dot segments
	if err := validate(own.URL); err != nil {
		return nil, err
	}
	if err := checkRequest(own); err != nil {
		return nil, err
	}
	if err := f.check.ask(arcp.NamespaceNetFetch, withoutSecrets(own.URL)); err != nil {
		return nil, err
	}
	own.Host = ""
	own.Header.Del("Host")
	return own, nil
}

// redirect checks the next request of a chain of redirects and removes its secrets for another origin.
func (f *Fetcher) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > max(f.o.MaxRedirects, 0) {
		return arcp.Errorf(arcp.CodeFailedPrecondition, "%s redirects more than %d times", withoutSecrets(via[0].URL), max(f.o.MaxRedirects, 0))
	}
	req.URL = req.URL.ResolveReference(req.URL)
	if err := validate(req.URL); err != nil {
		return err
	}
	if err := f.check.ask(arcp.NamespaceNetFetch, withoutSecrets(req.URL)); err != nil {
		return err
	}
	for _, r := range append(via[1:len(via):len(via)], req) {
		if origin(r.URL) != origin(via[0].URL) {
			for _, name := range secretHeaders {
				req.Header.Del(name)
			}
		}
	}
	req.Host = ""
	return nil
}

// secretHeaders lists headers for one origin. net/http also sends them to another port, to subdomains and from
// https to http. The query of a Referer is also secret.
var secretHeaders = []string{"Authorization", "Cookie", "Cookie2", "Proxy-Authorization", "Referer", "Www-Authenticate"}

// checkRequest returns an error for a request whose Host is not the host of the URL, and for a CONNECT or an upgrade.
func checkRequest(req *http.Request) error {
	for _, host := range append(req.Header.Values("Host"), req.Host) {
		if host != "" && !strings.EqualFold(host, req.URL.Host) {
			return malformed(host, "the Host of a request is that of its URL")
		}
	}
	if strings.EqualFold(req.Method, http.MethodConnect) {
		return malformed(req.Method, "this method is not supported")
	}
	for name, values := range req.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Upgrade", "Http2-Settings":
			return malformed(name, "a connection is not upgraded")
		case "Connection", "Proxy-Connection":
			if strings.Contains(strings.ToLower(strings.Join(values, ",")), "upgrade") {
				return malformed(name, "a connection is not upgraded")
			}
		}
	}
	return nil
}

// validate returns an error for a URL that the check, the client and the server could interpret differently.
func validate(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return malformed(withoutSecrets(u), "the scheme is neither http nor https")
	case u.User != nil:
		return malformed(withoutSecrets(u), "a URL has no user and password")
	case u.Opaque != "":
		return malformed(withoutSecrets(u), "the URL is not hierarchical")
	case !validHost(u):
		return malformed(withoutSecrets(u), "the host is not a name or an address in ASCII, or the port is not a number")
	case !validPath(u):
		return malformed(withoutSecrets(u), "the path has encoded dot segments, separators or control characters")
	}
	return nil
}

func validHost(u *url.URL) bool {
	host, port := u.Hostname(), u.Port()
	if strings.HasSuffix(u.Host, ":") {
		return false
	}
	if port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	if strings.HasPrefix(u.Host, "[") {
		ip, err := netip.ParseAddr(host)
		return err == nil && ip.Is6() && ip.Zone() == ""
	}
	return host != "" && len(host) <= 253 && !strings.ContainsFunc(host, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '.' || r == '-' || r == '_')
	})
}

// validPath reports whether a path has no encoded dot segment and no encoded separator, which a server may interpret as
// another path.
func validPath(u *url.URL) bool {
	if !isPlain(u.Path) || strings.Contains(u.Path, `\`) {
		return false
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		name, err := url.PathUnescape(segment)
		name, _, _ = strings.Cut(name, ";") // some servers ignore parameters
		if err != nil || name == "." || name == ".." || strings.Contains(name, "/") {
			return false
		}
	}
	return true
}

// withoutSecrets returns the URL for the check and for messages, without its query.
func withoutSecrets(u *url.URL) string {
	s := url.URL{Scheme: u.Scheme, Host: u.Host, Path: cmp.Or(u.Path, "/"), RawPath: u.RawPath}
	return s.String()
}

func withoutQuery(raw string) string {
	raw, _, _ = strings.Cut(raw, "?")
	if i := strings.LastIndex(raw, "@"); i >= 0 {
		raw = "…" + raw[i:]
	}
	return raw
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

// body is the bounded body of a response. One goroutine at a time may use it.
type body struct {
	io.ReadCloser
	cancel      context.CancelFunc
	limit, left int64 // bytes; a negative limit is no limit
}

func (b *body) Read(p []byte) (int, error) {
	if b.limit < 0 || len(p) == 0 {
		return b.ReadCloser.Read(p)
	}
	if b.left < 0 {
		return 0, tooLarge("the body", b.limit)
	}
	if int64(len(p)) > b.left+1 { // one more byte exceeds the limit
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= int64(n)
	if b.left < 0 {
		return n - 1, tooLarge("the body", b.limit)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
