package access

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

func fetcher(t *testing.T, o FetchOptions, covered ...string) *Fetcher {
	t.Helper()
	f := NewFetcher(lease{arcp.NamespaceNetFetch: covered}.check, o)
	t.Cleanup(f.Close)
	return f
}

// get returns the body of a URL, or the error.
func get(t *testing.T, f *Fetcher, url string) (string, error) {
	t.Helper()
	resp, err := f.Get(t.Context(), url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return string(data), err
}

func echoPath(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RequestURI) }

func TestFetchAsksForTheURL(t *testing.T) {
	base := serve(t, echoPath)
	a := &asked{lease: lease{arcp.NamespaceNetFetch: {base + "/pub"}}}
	f := NewFetcher(a.check, FetchOptions{})
	defer f.Close()
	for _, c := range []struct{ url, result, sent string }{
		{"/pub", "ok", "/pub"},
		{"/pub/x?token=1#frag", "ok", "/pub/x?token=1"},
		{"/pub/x/../y", "ok", "/pub/y"},
		{"/pub/./x//y", "ok", "/pub/x//y"},
		{"/pub/a%20b", "ok", "/pub/a%20b"},
		{"/pub/ü", "ok", "/pub/%C3%BC"},
		{"/private/../pub/x", "ok", "/pub/x"},
		{"/pub/../private", "denied", ""},
		{"/pub//../../private", "denied", ""},
		{"/public", "denied", ""},
		{"", "denied", ""},
		{"/", "denied", ""},
		{"/pub/%2e%2e/private", "malformed", ""},
		{"/pub/.%2E/private", "malformed", ""},
		{"/pub/..;x/private", "malformed", ""},
		{"/pub/..%2fprivate", "malformed", ""},
		{"/pub/..%5cprivate", "malformed", ""},
		{"/pub/..\\private", "malformed", ""},
		{"/pub/%00", "malformed", ""},
		{"/pub/%0a", "malformed", ""},
		{"/pub/%ff", "malformed", ""},
		{"/pub/%zz", "malformed", ""},
	} {
		body, err := get(t, f, base+c.url)
		want(t, err, c.result, c.url)
		if err == nil && body != c.sent {
			t.Errorf("%s: sent %s, want %s", c.url, body, c.sent)
		}
	}
	for _, q := range a.log {
		if strings.ContainsAny(q, "?#") {
			t.Errorf("the check was asked %q: a query can hold secrets", q)
		}
	}
}

func TestMalformedURLs(t *testing.T) {
	all := NewFetcher(func(_, _ string) error { return nil }, FetchOptions{})
	for _, raw := range []string{
		"", "x", "/x", "//127.0.0.1/x", "ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1/", "unix:///run/x", "data:,x",
		"http://user@127.0.0.1/", "http://user:secret@127.0.0.1/", "http://:@127.0.0.1/", "http:127.0.0.1", "http://", "http:///x",
		"http://127.0.0.1:99999/", "http://127.0.0.1:0/", "http://127.0.0.1:http/", "http://ex%41mple.com/", "http://exämple.com/",
		"http://ｅxample.com/", "http://exa mple.com/", "http://example.com\\@127.0.0.1/", "http://[fe80::1%25lo]/", "http://[::1", "http://a*b/",
		"http://127.0.0.1 /", "http://example.com\x00/",
	} {
		_, err := get(t, all, raw)
		want(t, err, "malformed", raw)
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error shows the password: %v", raw, err)
		}
	}
	for _, u := range []*url.URL{nil, {Scheme: "http", Opaque: "//127.0.0.1/x", Host: "example.com"}, {Scheme: "http", Host: "127.0.0.1:"}, {Scheme: "HTTP", Host: "h"}} {
		_, err := all.Do(&http.Request{URL: u})
		want(t, err, "malformed", "a URL made by hand")
	}
}

func TestRequestReachesOnlyItsHost(t *testing.T) {
	var hits atomic.Int64
	base := serve(t, func(w http.ResponseWriter, r *http.Request) { hits.Add(1); _, _ = io.WriteString(w, r.Host) })
	host := strings.TrimPrefix(base, "http://")
	f := fetcher(t, FetchOptions{}, base)
	send := func(change func(*http.Request)) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(req)
		resp, err := f.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	want(t, send(func(r *http.Request) { r.Host = host }), "ok", "the host itself")
	want(t, send(func(r *http.Request) { r.Host = "" }), "ok", "no host")
	want(t, send(func(r *http.Request) { r.Header = nil }), "ok", "no header")
	want(t, send(func(r *http.Request) { r.Header.Set("Connection", "close") }), "ok", "a plain connection header")
	sent := hits.Load()
	for why, change := range map[string]func(*http.Request){
		"another Host":            func(r *http.Request) { r.Host = "internal.example" },
		"another port":            func(r *http.Request) { r.Host = "127.0.0.1:1" },
		"another Host by header":  func(r *http.Request) { r.Header.Set("Host", "internal.example") },
		"CONNECT":                 func(r *http.Request) { r.Method = "CONNECT" },
		"upgrade":                 func(r *http.Request) { r.Header.Set("Upgrade", "websocket") },
		"upgrade by a raw header": func(r *http.Request) { r.Header["upgrade"] = []string{"h2c"} },
		"connection: upgrade":     func(r *http.Request) { r.Header.Set("Connection", "keep-alive, Upgrade") },
	} {
		want(t, send(change), "malformed", why)
	}
	if hits.Load() != sent {
		t.Error("a refused request was sent")
	}
}

func TestRedirectsAreChecked(t *testing.T) {
	secret := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Errorf("%s was fetched", r.URL) })
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "auth="+r.Header.Get("Authorization")+" cookie="+r.Header.Get("Cookie")+" from="+r.Header.Get("Referer"))
	})
	var base string
	base = serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "c", Value: "1"})
		to := map[string]string{
			"/ok/near": "/ok/end", "/ok/secret": secret, "/ok/path": "/private", "/ok/up": "../private", "/ok/loop": "/ok/loop",
			"/ok/file": "file:///etc/passwd", "/ok/user": strings.Replace(base, "//", "//u:p@", 1) + "/ok/end", "/ok/metadata": "http://169.254.169.254/",
			"/ok/other": other + "/", "/ok/dots": "/ok/%2e%2e/private", "/ok/clean": "/ok/x/../end", "/ok/blank": "http:///x",
		}[r.URL.Path]
		switch {
		case r.URL.Path == "/private":
			t.Errorf("%s was fetched", r.URL)
		case to != "":
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusTemporaryRedirect)
		default:
			_, _ = io.WriteString(w, "end "+r.URL.Path+" auth="+r.Header.Get("Authorization")+" cookie="+r.Header.Get("Cookie"))
		}
	})
	f := fetcher(t, FetchOptions{}, base+"/ok", other)
	for path, result := range map[string]string{
		"near": "ok", "clean": "ok", "other": "ok", "secret": "denied", "path": "denied", "up": "denied", "loop": "precondition", "file": "malformed",
		"user": "malformed", "metadata": "denied", "dots": "malformed", "end": "ok",
	} {
		_, err := get(t, f, base+"/ok/"+path)
		want(t, err, result, "redirect "+path)
	}
	if _, err := get(t, f, base+"/ok/blank"); err == nil {
		t.Error("a redirect without a host was followed")
	}
	_, err := get(t, fetcher(t, FetchOptions{MaxRedirects: -1}, base), base+"/ok/near")
	want(t, err, "precondition", "no redirect at all")

	body := func(path string) string {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, nil)
		req.Header.Set("Authorization", "Bearer x")
		req.Header.Set("Cookie", "own=1")
		resp, err := f.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		return string(data)
	}
	if got := body("/ok/near"); got != "end /ok/end auth=Bearer x cookie=own=1" {
		t.Errorf("within the origin: %q", got)
	}
	if got := body("/ok/other?q=secret"); got != "auth= cookie= from=" {
		t.Errorf("another port is another origin: %q", got)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(make([]byte, 1<<16))
	_ = z.Close()
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped.Bytes())
		case "/stream":
			for range 101 {
				_, _ = w.Write(make([]byte, 10))
				_ = http.NewResponseController(w).Flush()
			}
		default:
			_, _ = w.Write(make([]byte, len(r.URL.Path)-1))
		}
	})
	for path, result := range map[string]string{
		"/": "ok", "/" + strings.Repeat("x", 999): "ok", "/" + strings.Repeat("x", 1000): "ok", "/" + strings.Repeat("x", 1001): "toolarge",
		"/stream": "toolarge", "/bomb": "toolarge",
	} {
		body, err := get(t, fetcher(t, FetchOptions{MaxBody: 1000}, base), base+path)
		want(t, err, result, path)
		if len(body) > 1000 {
			t.Errorf("%s: %d bytes were read", path, len(body))
		}
	}
	_, err := get(t, fetcher(t, FetchOptions{MaxBody: -1}, base), base+"/bomb")
	want(t, err, "ok", "without a limit")
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodHead, base+"/"+strings.Repeat("x", 2000), nil)
	resp, err := fetcher(t, FetchOptions{MaxBody: 1000}, base).Do(req)
	want(t, err, "ok", "HEAD has no body")
	if err == nil {
		resp.Body.Close()
	}
}

func TestContextEndsBody(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := fetcher(t, FetchOptions{}, base).Get(ctx, base+"/")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("the body ends with %v", err)
	}
	resp.Body.Close()
	for timeout := 50 * time.Millisecond; ; timeout *= 2 { // until the headers come within it
		if resp, err = fetcher(t, FetchOptions{Timeout: timeout}, base).Get(t.Context(), base+"/"); err == nil {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the body ends with %v after the timeout", err)
	}
	resp.Body.Close()
}

// names returns a resolver that answers each lookup with the next answer.
func names(t *testing.T, answers ...string) *net.Resolver {
	var n atomic.Int64
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer server.Close()
			answerDNS(server, func() netip.Addr {
				i := min(int(n.Add(1)), len(answers)) - 1
				return netip.MustParseAddr(answers[i])
			})
		}()
		return client, nil
	}}
}

// answerDNS answers one question as over TCP: A with the next address, any other type with an
// empty answer.
func answerDNS(conn net.Conn, next func() netip.Addr) {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	q := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, q); err != nil {
		return
	}
	end := 12
	for q[end] != 0 {
		end += int(q[end]) + 1
	}
	kind := q[end+2]
	m := slices.Clone(q[:end+5])
	copy(m[2:12], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
	if kind == 1 {
		m[7] = 1
		ip := next().As4()
		m = append(m, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
		m = append(m, ip[:]...)
	}
	_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(m))), m...))
}

func TestRebindingIsRefused(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // the next request dials again
		_, _ = io.WriteString(w, "hello "+r.Host)
	})
	named := strings.Replace(base, "127.0.0.1", "rebind.example", 1)
	f := fetcher(t, FetchOptions{Resolver: names(t, "127.0.0.1", "169.254.169.254")}, named)
	body, err := get(t, f, named+"/")
	want(t, err, "ok", "the first answer is harmless")
	if body != "hello "+strings.TrimPrefix(named, "http://") {
		t.Errorf("the body is %q", body)
	}
	_, err = get(t, f, named+"/")
	want(t, err, "denied", "the second one is the metadata service")

	for ip, result := range map[string]string{"127.0.0.1": "ok", "169.254.169.254": "denied", "224.0.0.1": "denied", "0.0.0.0": "denied", "100.100.100.200": "denied"} {
		told := 0
		f := fetcher(t, FetchOptions{Resolver: names(t, ip)}, named).OnRefusal(func(namespace string, err *arcp.Error) { told++ })
		_, err := get(t, f, named+"/")
		want(t, err, result, "a name for "+ip)
		if refused := result == "denied"; refused != (told == 1) {
			t.Errorf("a name for %s: told %d times", ip, told)
		}
	}
	_, err = get(t, fetcher(t, FetchOptions{Resolver: names(t, "127.0.0.1"), BlockPrivate: true}, named), named+"/")
	want(t, err, "denied", "a name for a private address")
	_, err = get(t, fetcher(t, FetchOptions{BlockPrivate: true}, base), base+"/")
	want(t, err, "denied", "a private address, named")
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	// byName, named: by default; public: with BlockPrivate, however named.
	for ip, c := range map[string]struct{ byName, named, public bool }{
		"93.184.216.34":          {true, true, true},
		"2606:2800:220:1::1":     {true, true, true},
		"127.0.0.1":              {true, true, false},
		"::1":                    {true, true, false},
		"10.1.2.3":               {true, true, false},
		"172.16.0.1":             {true, true, false},
		"192.168.1.1":            {true, true, false},
		"100.64.0.1":             {true, true, false},
		"fd12::1":                {true, true, false},
		"::ffff:127.0.0.1":       {true, true, false},
		"169.254.169.254":        {false, true, false},
		"::ffff:169.254.169.254": {false, true, false},
		"64:ff9b::a9fe:a9fe":     {false, true, false},
		"64:ff9b::a01:203":       {true, true, false},
		"2002:a9fe:a9fe::1":      {false, true, false},
		"fe80::1":                {false, true, false},
		"fe80::1%eth0":           {false, true, false},
		"fd00:ec2::254":          {false, true, false},
		"168.63.129.16":          {false, true, false},
		"224.0.0.251":            {false, true, false},
		"ff02::1":                {false, true, false},
		"0.0.0.0":                {false, true, false},
		"0.1.2.3":                {false, true, false},
		"::":                     {false, true, false},
		"255.255.255.255":        {false, true, false},
		"240.0.0.1":              {true, true, false},
	} {
		ip := netip.MustParseAddr(ip)
		open, block := FetchOptions{}, FetchOptions{BlockPrivate: true}
		if open.dialable(ip, false) != c.byName || open.dialable(ip, true) != c.named {
			t.Errorf("%v: by name %v, named %v, want %v", ip, open.dialable(ip, false), open.dialable(ip, true), c)
		}
		if block.dialable(ip, false) != c.public || block.dialable(ip, true) != c.public {
			t.Errorf("%v is dialled with BlockPrivate: %v, want %v", ip, block.dialable(ip, true), c.public)
		}
	}
}

func TestForSharesOnlyConnections(t *testing.T) {
	var conns, cookies atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cookies.Add(int64(len(r.Cookies())))
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	shared := NewFetcher(nil, FetchOptions{})
	defer shared.Close()
	_, err := get(t, shared, s.URL+"/")
	want(t, err, "denied", "without a check nothing is allowed")
	one, two := shared.For(lease{arcp.NamespaceNetFetch: {s.URL}}.check), shared.For(lease{arcp.NamespaceNetFetch: {s.URL}}.check)
	for _, f := range []*Fetcher{one, two, one} {
		_, err := get(t, f, s.URL+"/")
		want(t, err, "ok", "covered")
	}
	_, err = get(t, shared.For(lease{}.check), s.URL+"/")
	want(t, err, "denied", "an idle connection is no authority")
	if conns.Load() != 1 || cookies.Load() != 0 {
		t.Errorf("%d connections, %d cookies; want one and none", conns.Load(), cookies.Load())
	}
}

func TestNoProxyFromTheEnvironment(t *testing.T) {
	proxy := serve(t, func(w http.ResponseWriter, r *http.Request) { t.Error("the proxy was used") })
	t.Setenv("HTTP_PROXY", proxy)
	named := strings.Replace(serve(t, echoPath), "127.0.0.1", "site.example", 1)
	_, err := get(t, fetcher(t, FetchOptions{Resolver: names(t, "127.0.0.1")}, named), named+"/x")
	want(t, err, "ok", "directly")
}

func TestSwitchingProtocolsIsRefused(t *testing.T) {
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	})
	_, err := get(t, fetcher(t, FetchOptions{}, base), base+"/")
	want(t, err, "denied", "101 without having asked")
}

func TestErrorsHideTheQuery(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	base := "http://" + l.Addr().String()
	l.Close()
	_, err = get(t, fetcher(t, FetchOptions{}, base), base+"/x?token=secret")
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the error is %v", err)
	}
}
