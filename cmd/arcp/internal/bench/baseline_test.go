package bench

import (
	"os"
	"testing"

	"github.com/arcpd/arcpd/transport"
)

func TestBaselineReturnsTheLatestFrame(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		client, server := transport.Pipe(transport.Limits{ReadLimit: readLimit})
		done := make(chan error, 1)
		go func() { done <- (&Baseline{Dir: dir}).Serve(server) }()
		s := &session{client, nil}
		for _, e := range [][2]string{{"first", put}, {"second", put}, {get, "second"}, {get, "second"}} {
			if err := s.send([]byte(e[0])); err != nil {
				t.Fatal(err)
			}
			if got, err := client.Read(); err != nil || string(got) != e[1] {
				t.Errorf("%q in directory %q is answered with %q (%v), want %q", e[0], dir, got, err, e[1])
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
