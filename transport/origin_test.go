//go:build linux

package transport_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/transport"
)

func TestOnlyAllowedHostsAndOriginsConnect(t *testing.T) {
	for _, test := range []struct {
		host, origin string // PORT stands for the server's port
		hosts        string // allowed, by commas
		origins      string
		want         int
	}{
		{host: "localhost:PORT", want: 101},
		{host: "LocalHost", want: 101},
		{host: "127.0.0.1:PORT", want: 101},
		{host: "127.0.0.2", want: 101},
		{host: "[::1]:1234", want: 101},
		{host: "arcp.localhost:80", want: 101},
		{host: "evil.example", want: 421},
		{host: "localhost.evil.example", want: 421},
		{host: "10.0.0.1", want: 421},
		{host: "", want: 421},

		{host: "arcp.example", hosts: "arcp.example", want: 101},
		{host: "arcp.example:8443", hosts: "arcp.example", want: 101},
		{host: "ARCP.example:8443", hosts: "other.example,Arcp.Example:8443", want: 101},
		{host: "arcp.example:8443", hosts: "arcp.example:443", want: 421},
		{host: "arcp.example", hosts: "arcp.example:443", want: 421},
		{host: "sub.arcp.example", hosts: "arcp.example", want: 421},
		{host: "[2001:db8::1]:80", hosts: "2001:db8::1", want: 101},
		{host: "[2001:db8::1]:80", hosts: "[2001:db8::1]:80", want: 101},
		{host: "anything.example", hosts: "*", want: 101},

		{host: "localhost:PORT", origin: "http://localhost:PORT", want: 101},
		{host: "localhost:PORT", origin: "http://LOCALHOST:PORT", want: 101},
		{host: "localhost:PORT", origin: "http://localhost:1", want: 403},
		{host: "localhost:PORT", origin: "https://evil.example", want: 403},
		{host: "localhost:PORT", origin: "null", want: 403},
		{host: "localhost:PORT", origin: "http://%", want: 403},
		{host: "evil.example", origin: "http://evil.example", want: 421},

		{host: "localhost", origin: "https://app.example", origins: "https://app.example", want: 101},
		{host: "localhost", origin: "https://APP.example", origins: "https://app.example", want: 101},
		{host: "localhost", origin: "http://app.example", origins: "https://app.example", want: 403},
		{host: "localhost", origin: "https://app.example:444", origins: "https://app.example", want: 403},
		{host: "localhost", origin: "https://app.example:444", origins: "app.example", want: 101},
		{host: "localhost", origin: "https://app.example:444", origins: "app.example:444", want: 101},
		{host: "localhost", origin: "https://app.example:444", origins: "app.example:443", want: 403},
		{host: "localhost", origin: "https://app.example.evil", origins: "app.example", want: 403},
		{host: "localhost", origin: "null", origins: "null", want: 101},
		{host: "localhost", origin: "null", origins: "*", want: 101},
		{host: "localhost", origin: "http://%", origins: "x.example,*", want: 101},
	} {
		for _, s := range []*wsServer{newWSServer(t, httptest.NewServer), first(newDirectServer(t, "/"))} {
			s.AllowHosts, s.AllowOrigins = list(test.hosts), list(test.origins)
			told := make(chan transport.RefusedUpgrade, 1)
			s.Refused = func(u transport.RefusedUpgrade) { told <- u }
			port := strings.TrimSuffix(s.url[strings.LastIndex(s.url, ":")+1:], "/")
			r := upgradeRequest(t, s.url)
			r.Host = strings.ReplaceAll(test.host, "PORT", port)
			if test.origin != "" {
				r.Header.Set("Origin", strings.ReplaceAll(test.origin, "PORT", port))
			}
			if test.host == "" {
				r.Host = "-"
			}
			if code, _, line := ask(t, r); code != test.want || code != 101 && (strings.Count(line, "\n") != 1 || !strings.Contains(line, "is not allowed here: add it to the allowed ")) {
				t.Errorf("%+v: answered %d %q, want %d", test, code, line, test.want)
			} else if code == 101 {
				(<-s.conns).Abort()
			} else if u := <-told; u.Check != map[int]string{421: transport.CheckHost, 403: transport.CheckOrigin}[code] || u.Status != code || u.RemoteAddr != "127.0.0.1" || u.Reason.Error()+"\n" != line {
				t.Errorf("%+v: %+v is reported of the answer %d %q", test, u, code, line)
			}
		}
	}
}

func first[A, B any](a A, _ B) A { return a }

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// ask returns the answer to r.
func ask(t *testing.T, r *http.Request) (code int, h http.Header, body string) {
	t.Helper()
	tr := &http.Transport{DisableKeepAlives: true}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return resp.StatusCode, resp.Header, ""
	}
	var b bytes.Buffer
	if _, err := io.Copy(&b, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b.String()
}

func TestInvalidHandshakesAreRefused(t *testing.T) {
	s := newWSServer(t, httptest.NewServer)
	reported := make(chan transport.RefusedUpgrade, 1)
	s.Refused = func(u transport.RefusedUpgrade) { reported <- u }
	for _, test := range []struct {
		name string
		edit func(*http.Request)
		want int
	}{
		{"no upgrade", func(r *http.Request) { r.Header.Del("Upgrade") }, 426},
		{"another upgrade", func(r *http.Request) { r.Header.Set("Upgrade", "h2c") }, 426},
		{"no connection header", func(r *http.Request) { r.Header.Del("Connection") }, 426},
		{"POST", func(r *http.Request) { r.Method = http.MethodPost }, 405},
		{"old version", func(r *http.Request) { r.Header.Set("Sec-WebSocket-Version", "8") }, 400},
		{"no key", func(r *http.Request) { r.Header.Del("Sec-WebSocket-Key") }, 400},
		{"short key", func(r *http.Request) { r.Header.Set("Sec-WebSocket-Key", "AAAA") }, 400},
	} {
		r := upgradeRequest(t, s.url)
		test.edit(r)
		code, h, line := ask(t, r)
		if code != test.want || strings.Count(line, "\n") != 1 {
			t.Errorf("%s: answered %d %q, want %d and a line", test.name, code, line, test.want)
		}
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			if u := <-reported; u.Check != transport.CheckHandshake || u.Status != test.want {
				t.Errorf("%s: reported as %s with status %d, want that of the answer", test.name, u.Check, u.Status)
			}
		}
		if code == 426 && h.Get("Upgrade") != "websocket" {
			t.Errorf("%s: the answer does not say what to upgrade to: %v", test.name, h)
		}
	}
}

func TestPreferredSubprotocolIsChosen(t *testing.T) {
	s := newWSServer(t, httptest.NewServer)
	for offer, want := range map[string]string{
		"": "", "arcp": "arcp", "arcp.v1": "arcp.v1", "arcp, arcp.v1": "arcp.v1", "chat, arcp": "arcp", "chat": "",
	} {
		r := upgradeRequest(t, s.url)
		if offer != "" {
			r.Header.Set("Sec-WebSocket-Protocol", offer)
		}
		r.Header.Set("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits")
		code, h, _ := ask(t, r)
		if got := h.Get("Sec-WebSocket-Protocol"); code != 101 || got != want {
			t.Errorf("offered %q, answered %d %q, want %q", offer, code, got, want)
		}
		if got := h.Get("Sec-WebSocket-Extensions"); got != "" {
			t.Errorf("accepted the extension %q, want none", got)
		}
		(<-s.conns).Abort()
	}
}
