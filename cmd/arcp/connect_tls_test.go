package main

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// One line says why there is no TLS connection and what to do.
func TestTLSProblems(t *testing.T) {
	dir := t.TempDir()
	secured := httptest.NewTLSServer(http.NotFoundHandler())
	defer secured.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	host := strings.TrimPrefix(secured.URL, "https://")
	_, port, _ := net.SplitHostPort(host)
	plainHost := strings.TrimPrefix(plain.URL, "http://")
	ca := write(t, filepath.Join(dir, "ca.pem"),
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secured.Certificate().Raw})))
	other, _ := makeCertificate(t, dir, "other", 1)
	empty := write(t, filepath.Join(dir, "empty.pem"), "no certificate\n")
	for _, c := range []struct {
		name, url, ca string
		code          int
		want          string
	}{
		{"unknown authority", "wss://" + host, "", exitUnreachable,
			"arcp: the certificate of " + host + " is signed by an unknown authority: give --ca-file FILE with the certificate of the authority"},
		{"another authority", "wss://" + host, other, exitUnreachable,
			"arcp: the certificate of " + host + " is signed by none of the authorities in " + other + ": give --ca-file FILE with the certificate of the authority that has signed it"},
		{"wrong name", "wss://localhost:" + port, ca, exitUnreachable,
			"arcp: the certificate of localhost:" + port + " is for example.com"},
		{"a known authority, but no runtime", "wss://" + host, ca, exitUnreachable, "is not a runtime"},
		{"ws for wss", "ws://" + host, "", exitUnreachable, "arcp: " + host + " answers with TLS: use a URL with TLS, with wss://"},
		{"wss for ws", "wss://" + plainHost, "", exitUnreachable, "arcp: " + plainHost + " answers without TLS: use a URL without TLS"},
		{"a server that answers with an alert", "ws://" + alerting(t), "", exitUnreachable, "answers with TLS: use a URL with TLS"},
		{"no file", "wss://" + host, filepath.Join(dir, "none"), exitUsage, "no such file or directory"},
		{"no certificate", "wss://" + host, empty, exitUsage, "--ca-file " + empty + ": the file has no certificate in PEM"},
		{"no TLS", "ws://" + host, ca, exitUsage, "has no TLS; use a wss:// URL, or leave out --ca-file"},
	} {
		args := []string{"tools", "ls", "--url", c.url, "--token", "secret"}
		if c.ca != "" {
			args = append(args, "--ca-file", c.ca)
		}
		o := cli(t, args...)
		wantRefusal(t, o, c.code, c.want)
		if strings.Contains(o.stderr, "arcp dev") {
			t.Errorf("%s: %v names arcp dev, want no hint that does not help", c.name, o)
		}
	}
	o := cli(t, "conformance", "run", "--url", "wss://"+host, "--token", "secret")
	wantRefusal(t, o, exitUnreachable, "signed by an unknown authority: give --ca-file")
	o = cli(t, "conformance", "run", "--url", "wss://"+host, "--token", "secret", "--ca-file", other)
	wantRefusal(t, o, exitUnreachable, "signed by none of the authorities in "+other)
	wantOutcome(t, "the admin listener of doctor", cli(t, "doctor", "--url", "ws://"+plainHost, "--admin", secured.URL), exitFailed,
		"the certificate of "+host+" is signed by an unknown authority", "")
}

// alerting listens as a server that answers a request without TLS with a TLS alert.
func alerting(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Read(make([]byte, 1))
		_, _ = conn.Write([]byte("\x15\x03\x01\x00\x02\x02\x46\r\n")) // protocol_version
	}()
	t.Cleanup(func() { _ = ln.Close(); <-done })
	return ln.Addr().String()
}

// A hint names arcp dev only where it starts the runtime that is missing.
func TestHintForAnUnreachableRuntime(t *testing.T) {
	for url, want := range map[string]string{
		"ws://127.0.0.1:1/arcp":  "connection refused; `arcp dev` starts one",
		"wss://127.0.0.1:1/arcp": "connection refused; check that it runs, and that --url has its address",
	} {
		wantRefusal(t, cli(t, "tools", "ls", "--url", url, "--token", "secret"), exitUnreachable, want)
	}
	remote := &target{url: "ws://arcp.example:7777/arcp"}
	if hint := remote.startHint(); strings.Contains(hint, "arcp dev") {
		t.Errorf("hint for %s = %q, want no arcp dev", remote.url, hint)
	}
}

// A server that accepts connections and does not answer is not said to be missing.
func TestSilentServerMayBeStarting(t *testing.T) {
	err := (&target{url: "ws://127.0.0.1:7/arcp"}).explain(fmt.Errorf("open session: %w", errSilent))
	if exitCode(err) != exitUnreachable || !strings.Contains(err.Error(), "ws://127.0.0.1:7/arcp accepts connections and does not answer: it may be starting") {
		t.Errorf("exit code %d and %v, want %d and that it may be starting", exitCode(err), err, exitUnreachable)
	}
}

// An HTTP status that may pass is not taken for a wrong URL.
func TestServerThatRefusesConnectionsAtPresent(t *testing.T) {
	for status, want := range map[int]string{
		http.StatusServiceUnavailable: "refuses connections at present: HTTP status 503: too many; try again later",
		http.StatusBadGateway:         "refuses connections at present: HTTP status 502: too many; try again later",
		http.StatusForbidden:          "is not a runtime: HTTP status 403: too many; use the URL of the listening line",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "too many", status) }))
		o := cli(t, "tools", "ls", "--url", "ws"+strings.TrimPrefix(s.URL, "http"), "--token", "secret")
		if s.Close(); o.code != exitUnreachable || !strings.Contains(o.stderr, want) {
			t.Errorf("status %d: %v, want %q", status, o, want)
		}
	}
}
