package runtime_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp/client"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
)

// The end of the context of ListenAndServe stops the server: a running job ends first, and its client has the result.
func TestListenAndServeStopsGracefully(t *testing.T) {
	begunc, releasec := make(chan struct{}), make(chan struct{})
	slow := tool.MustNew(tool.Capability{Name: "slow"}, func(context.Context, tool.Job, struct{}) (int, error) {
		close(begunc)
		<-releasec
		return 7, nil
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	servedc := make(chan error, 1)
	go func() {
		servedc <- runtime.ServeOn(ctx, ln, runtime.Config{Store: mem.Open(mem.Options{}), Auth: exampleAuth()}, []*tool.Tool{slow})
	}()
	c, err := client.Dial(t.Context(), "ws://"+ln.Addr().String()+"/arcp", client.Options{Auth: client.Auth{Token: "correct horse battery staple"}})
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Invoke(t.Context(), client.InvokeParams{Tool: "slow", Arguments: struct{}{}})
	if err != nil {
		t.Fatal(err)
	}
	<-begunc
	stop()
	close(releasec)
	if result, err := job.Wait(t.Context()); err != nil || string(result.Value) != "7" {
		t.Errorf("the job that ran at the stop returns %s, %v, want 7", result.Value, err)
	}
	if err := <-servedc; err != nil {
		t.Errorf("the server returns %v after a stop, want nil", err)
	}
	if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil {
		conn.Close()
		t.Error("the listener is open after the stop")
	}
}

// A server that cannot start returns the reason, and leaves the store to the caller.
func TestListenAndServeThatCannotStart(t *testing.T) {
	config := runtime.Config{Store: mem.Open(mem.Options{}), Auth: exampleAuth()}
	err := runtime.ListenAndServe(t.Context(), "127.0.0.1:none", config)
	if err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("ListenAndServe at a port that is none = %v, want an error that names it", err)
	}
	taken := tool.MustNew(tool.Capability{Name: "x"}, func(context.Context, tool.Job, struct{}) (int, error) { return 0, nil })
	if err := runtime.ListenAndServe(t.Context(), "127.0.0.1:0", config, taken, taken); err == nil || !strings.Contains(err.Error(), "x@1.0.0") {
		t.Errorf("ListenAndServe with a tool twice = %v, want an error that names x@1.0.0", err)
	}
	if err := runtime.ListenAndServe(t.Context(), "127.0.0.1:0", runtime.Config{Store: config.Store}); err == nil {
		t.Error("ListenAndServe without credentials = nil, want an error")
	}
	if err := config.Store.Close(); err != nil {
		t.Errorf("the store of a server that has not started: %v", err)
	}
}
