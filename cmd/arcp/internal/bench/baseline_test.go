package bench

import (
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/transport"
)

func TestBaselineReturnsTheLatestFrame(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		done := make(chan error, 1)
		upgrader := transport.Upgrader{Limits: transport.Limits{ReadLimit: readLimit}}
		server := httptest.NewServer(upgrader.Handler(func(c transport.Conn) { done <- (&Baseline{Dir: dir}).Serve(c) }))
		defer server.Close()
		client, err := transport.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), transport.DialOptions{Limits: transport.Limits{ReadLimit: readLimit}})
		if err != nil {
			t.Fatal(err)
		}
		s, bin := &session{client, nil}, acceptBinary(client)
		for _, e := range []struct {
			request, answer string
		}{{"first", put}, {"second", put}, {get, "second"}, {get, "second"}} {
			send := s.sendBinary
			if e.request == get {
				send = s.send
			}
			if err := send([]byte(e.request)); err != nil {
				t.Fatal(err)
			}
			if got, err := client.Read(); err != nil || string(got) != e.answer || bin.Binary() != (e.request == get) {
				t.Errorf("%q in directory %q is answered with %q, binary: %v (%v), want %q", e.request, dir, got, bin.Binary(), err, e.answer)
			}
		}
		client.Abort()
		<-done
		if dir == "" {
			continue
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%v is left behind (%v)", left, err)
		}
	}
}
