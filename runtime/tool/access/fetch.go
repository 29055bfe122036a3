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

// FetchOptions are the settings of a Fetcher. Zero members are the documented
// defaults. They are not changed after use.
type FetchOptions struct {
	Timeout      time.Duration // from the request to the end of the body; default 30 s, negative: none
	MaxBody      int64         // bytes of a body, after decompression; default 64 MiB, negative: any
	MaxRedirects int           // default 10, negative: none is followed, it is an error
	BlockPrivate bool          // only public addresses are dialled, however they are named
	Resolver     *net.Resolver // default net.DefaultResolver
	TLS          *tls.Config   // default: the system's roots
}

// Fetcher fetches URLs within the authority of a job, over http and https. It may
// be used by many goroutines.
//
// There is no proxy, no cookie jar, no CONNECT and no upgrade. An address that is
// link-local (where clouds keep credentials), a known metadata service, multicast
// or unspecified is not dialled, unless the URL names the address itself.
type Fetcher struct {
	check     Check
	onRefusal RefusalFunc
	o         FetchOptions
	client    *http.Client
}

// NewFetcher returns a fetcher with connections of its own. Close releases them.
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

// For returns the fetcher of another job, which shares the idle connections and
// nothing else.
func (f *Fetcher) For(check Check) *Fetcher { return newFetcher(check, f.o, f.client.Transport) }

// OnRefusal returns a copy of f that calls report for each operation that f itself refuses.
func (f *Fetcher) OnRefusal(report RefusalFunc) *Fetcher {
	g := f.For(f.check)
	g.onRefusal = report
	return g
}

// Close closes the idle connections, also of the fetchers made by For.
func (f *Fetcher) Close() { f.client.CloseIdleConnections() }

func newTransport(o FetchOptions) *http.Transport {
	return &http.Transport{
		DialContext:            o.dial,
		TLSClientConfig:        o.TLS.Clone(),
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		ExpectContinueTimeout:  time.Second,
		IdleConnTimeout:        90 * time.Second,
		MaxIdleConns:           128, // the fetchers of many jobs share them
		MaxIdleConnsPerHost:    8,
		MaxResponseHeaderBytes: 1 << 20,
	}
}

// Get fetches a URL.
func (f *Fetcher) Get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, malformed(withoutQuery(url), "this is not a URL")
	}
	return f.Do(req)
}

// Do sends a request. It needs net.fetch of its URL and of each redirect's URL. The tool must
// close the body. Reading it fails with RESOURCE_EXHAUSTED past the limit, and when ctx or the
// time limit ends.
//
// The request is not changed. Its path is sent without dot segments; its Host, if set, must be
// the URL's. Authorization and Cookie are not sent to another origin (scheme, host and port).
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
			_ = req.Body.Close() // a client always closes it; the refusal is the result
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
		return &blocked{arcp.Errorf(arcp.CodePermissionDenied, "%s switches the protocol", show(resp.Request.URL))}
	}
	if f.o.MaxBody >= 0 && resp.ContentLength > f.o.MaxBody && resp.Request.Method != http.MethodHead {
		return tooLarge("the body", f.o.MaxBody)
	}
	return nil
}

// admit returns the request to send for req, if it is allowed.
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
	if err := ordinary(own); err != nil {
		return nil, err
	}
	if err := f.check.may(arcp.NamespaceNetFetch, show(own.URL)); err != nil {
		return nil, err
	}
	own.Host = ""
	own.Header.Del("Host")
	return own, nil
}

// redirect admits the next request of a chain, which the client has made.
func (f *Fetcher) redirect(req *http.Request, via []*http.Request) error {
	if len(via) > max(f.o.MaxRedirects, 0) {
		return arcp.Errorf(arcp.CodeFailedPrecondition, "%s redirects more than %d times", show(via[0].URL), max(f.o.MaxRedirects, 0))
	}
	req.URL = req.URL.ResolveReference(req.URL)
	if err := validate(req.URL); err != nil {
		return err
	}
	if err := f.check.may(arcp.NamespaceNetFetch, show(req.URL)); err != nil {
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

// secretHeaders belong to one origin. net/http keeps them for another port, for subdomains and
// from https to http. The query of a Referer is also secret.
var secretHeaders = []string{"Authorization", "Cookie", "Cookie2", "Proxy-Authorization", "Referer", "Www-Authenticate"}

// ordinary refuses requests that are more than a question to the URL's host.
func ordinary(req *http.Request) error {
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

// validate refuses URLs that could mean something else to the check, to the
// client and to the server.
func validate(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return malformed(show(u), "the scheme is neither http nor https")
	case u.User != nil:
		return malformed(show(u), "a URL has no user and password")
	case u.Opaque != "":
		return malformed(show(u), "the URL is not hierarchical")
	case !validHost(u):
		return malformed(show(u), "the host is not a name or an address in ASCII, or the port is not a number")
	case !validPath(u):
		return malformed(show(u), "the path has encoded dot segments, separators or control characters")
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

// validPath refuses a decoded dot segment or separator: a server may read it as another place
// than the checked one.
func validPath(u *url.URL) bool {
	if !plain(u.Path) || strings.Contains(u.Path, `\`) {
		return false
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		name, err := url.PathUnescape(segment)
		name, _, _ = strings.Cut(name, ";") // some servers ignore the rest
		if err != nil || name == "." || name == ".." || strings.Contains(name, "/") {
			return false
		}
	}
	return true
}

// show is a URL as it is checked, and as it may be shown: a query can hold
// secrets.
func show(u *url.URL) string {
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

// body is a response's body with its bounds. It is used by one goroutine at a
// time, as any body.
type body struct {
	io.ReadCloser
	cancel      context.CancelFunc
	limit, left int64 // negative limit: none
}

func (b *body) Read(p []byte) (int, error) {
	if b.limit < 0 || len(p) == 0 {
		return b.ReadCloser.Read(p)
	}
	if b.left < 0 {
		return 0, tooLarge("the body", b.limit)
	}
	if int64(len(p)) > b.left+1 { // one byte more shows that the limit is exceeded
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
