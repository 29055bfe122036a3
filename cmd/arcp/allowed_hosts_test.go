package main

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
)

func TestLoopbackAddressesAreRecognised(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "LOCALHOST:1": true, "[::ffff:127.0.0.1]:1": true,
		"0.0.0.0:1": false, ":1": false, "[::]:1": false, "192.0.2.1:1": false, "example.org:1": false, "127.0.0.1": false,
		"localhost.example.org:1": false,
	} {
		if got := isLoopback(addr); got != want {
			t.Errorf("isLoopback(%q) = %t, want %t", addr, got, want)
		}
	}
}

func TestAllowedHostsFollowTheListener(t *testing.T) {
	for _, c := range []struct {
		listen string
		listed []string
		proxy  bool
		want   []string
	}{
		{"127.0.0.1:1", nil, false, nil},
		{"127.0.0.1:1", nil, true, []string{"*"}},
		{"0.0.0.0:1", nil, false, []string{"*"}},
		{"0.0.0.0:1", []string{"a"}, true, []string{"a"}},
	} {
		if got := allowedHosts(c.listen, c.listed, c.proxy); !slices.Equal(got, c.want) {
			t.Errorf("allowedHosts(%q, %q, %t) = %q, want %q", c.listen, c.listed, c.proxy, got, c.want)
		}
	}
}

func TestAdminKnowsItsHosts(t *testing.T) {
	listed := []string{"metrics.example.org", "other.example.org:7778"}
	for host, want := range map[string]bool{
		"127.0.0.1:7778": true, "localhost": true, "[::1]:7778": true, "10.0.0.1:7778": true, "Metrics.example.org:1": true,
		"other.example.org:7778": true, "other.example.org:1": false, "evil.example.org:7778": false, "": false,
	} {
		if got := knownHost(host, listed); got != want {
			t.Errorf("knownHost(%q) = %t, want %t", host, got, want)
		}
	}
	if !knownHost("anything", []string{"*"}) {
		t.Error("* does not allow everything")
	}
}

func TestForwardedAddressIsTheLast(t *testing.T) {
	for _, c := range []struct {
		headers []string
		want    string
	}{
		{nil, "192.0.2.1:1234"},
		{[]string{"10.0.0.1"}, "10.0.0.1:0"},
		{[]string{"6.6.6.6, 10.0.0.2"}, "10.0.0.2:0"},
		{[]string{"6.6.6.6", "10.0.0.3"}, "10.0.0.3:0"},
		{[]string{"2001:db8::1"}, "[2001:db8::1]:0"},
		{[]string{"nonsense"}, "192.0.2.1:1234"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/arcp", nil)
		r.Header["X-Forwarded-For"] = c.headers
		var got string
		forwarded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.RemoteAddr })).ServeHTTP(httptest.NewRecorder(), r)
		if got != c.want {
			t.Errorf("X-Forwarded-For %q: remote address = %s, want %s", c.headers, got, c.want)
		}
	}
}

// Pages that could show secrets or stop the server are not served to other machines.
func TestDebugFromElsewhere(t *testing.T) {
	mux := http.NewServeMux()
	addDebug(mux)
	for remote, want := range map[string]int{"192.0.2.1:1": http.StatusForbidden, "127.0.0.1:1": http.StatusOK} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil)
		r.RemoteAddr = remote
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: status %d, want %d", remote, w.Code, want)
		}
	}
}

// Nor for pages that a browser of this machine shows.
func TestDebugFromPages(t *testing.T) {
	mux := http.NewServeMux()
	addDebug(mux)
	for _, c := range []struct {
		header, value string
		want          int
	}{
		{"Origin", "https://evil.example", http.StatusForbidden},
		{"Origin", "null", http.StatusForbidden},
		{"Sec-Fetch-Site", "cross-site", http.StatusForbidden}, // an image is asked for without an Origin
		{"Sec-Fetch-Site", "same-site", http.StatusForbidden},
		{"Sec-Fetch-Site", "none", http.StatusOK},
		{"Sec-Fetch-Site", "same-origin", http.StatusOK},
	} {
		for method, path := range map[string]string{http.MethodGet: "/debug/pprof/", http.MethodPost: "/debug/freemem"} {
			r := httptest.NewRequest(method, path, nil)
			r.RemoteAddr = "127.0.0.1:1"
			r.Header.Set(c.header, c.value)
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, r)
			if w.Code != c.want {
				t.Errorf("%s %s with %s %s: status %d, want %d", method, path, c.header, c.value, w.Code, c.want)
			}
		}
	}
}
