package chaos

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
)

var principals = []Principal{{"alice", "alice-0123456789abcdef"}, {"bob", "bob-0123456789abcdef"}}

// localServer is a runtime in this process. It is killed only at the end.
type localServer struct {
	*testing.T
	rt   *runtime.Runtime
	http http.Server
}

func (s *localServer) Start(ctx context.Context) (string, error) {
	var credentials auth.Config
	for _, p := range principals {
		if err := credentials.AddToken(auth.Token{Principal: p.Name, Secret: auth.Secret(p.Token), Roles: auth.LocalRoles()}); err != nil {
			return "", err
		}
	}
	tools := tool.NewRegistry()
	if err := demo.Register(tools); err != nil {
		return "", err
	}
	var err error
	if s.rt, err = runtime.New(ctx, runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(&credentials), Tools: tools, ReplayEvents: -1, ReplayBytes: -1, MinFree: -1}); err != nil {
		return "", err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s.http.Handler = s.rt.Handler()
	go s.http.Serve(ln)
	return ln.Addr().String(), nil
}

func (s *localServer) Kill() error {
	if err := s.http.Close(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.rt.Shutdown(ctx) // the campaign is over: jobs may be left
	return nil
}

// TestCampaign runs a short campaign without kills: connections are cut, and sessions are resumed.
func TestCampaign(t *testing.T) {
	if testing.Short() {
		t.Skip("listens on sockets: left out with -short")
	}
	for _, c := range []struct {
		name     string
		dialects []arcp.Dialect
	}{{"draft", []arcp.Dialect{arcp.DialectDraft}}, {"both", nil}} {
		t.Run(c.name, func(t *testing.T) {
			o, err := Run(t.Context(), &localServer{T: t}, Config{Seed: 1, Time: 3 * time.Second, Sessions: 2 * len(libraries), Principals: principals,
				Dialects: c.dialects, KillEvery: time.Hour, Progress: func(line string) { t.Log(line) }})
			if err != nil {
				t.Fatal(err)
			}
			t.Log(o)
			for _, f := range o.Findings[:min(len(o.Findings), 10)] {
				t.Error(f)
			}
			if o.Cuts == 0 || o.Jobs == 0 || o.Draft == 0 {
				t.Errorf("the campaign is too short: %v", o)
			}
		})
	}
}
