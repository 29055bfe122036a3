package mcp

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/osfile"
	"github.com/arcpd/arcpd/runtime/tool"
)

const twoTools = `{"name":"read","description":"reads","inputSchema":{"type":"object","properties":{"n":{"maximum":9007199254740993}}},` +
	`"annotations":{"readOnlyHint":true}},{"name":"write","inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}`

// answers serves a session with two tools.
func answers(conn net.Conn) {
	serveScript(conn, map[string]string{"initialize": hello, "tools/list": listing(twoTools),
		"tools/call": `{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"done"}]}}`})
}

// saveList runs a server with two tools once, and returns the file with their list.
func saveList(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "mcp", "srv.json")
	bubble(t, Config{ListFile: file}, func(_ int, conn net.Conn) { answers(conn) }, func(fx *fixture) {
		fx.start()
		waitIdle()
	})
	return file
}

// The tools of a server that does not answer at the start are those of its last list. Their gate opens when the
// server answers, and they stay the same tools.
func TestSavedToolsWaitForTheServer(t *testing.T) {
	file := saveList(t)
	info, err := os.Stat(file)
	if err != nil || osfile.Shared(info) {
		t.Fatalf("the file of the list is %v, %v, want one for its owner alone", info, err)
	}
	var releasec chan struct{}
	bubble(t, Config{ListFile: file}, func(_ int, conn net.Conn) { <-releasec; answers(conn) }, func(fx *fixture) {
		releasec = make(chan struct{})
		begin := time.Now()
		fx.start()
		if took := time.Since(begin); took != startWait {
			t.Errorf("the start waited %v for the server, want %v", took, startWait)
		}
		fx.want("the names", fx.publisher.names(), "srv.read srv.write")
		read, _ := fx.publisher.reg.Resolve("srv.read")
		write, _ := fx.publisher.reg.Resolve("srv.write")
		fx.want("the schema", string(read.InputSchema), `{"type":"object","properties":{"n":{"maximum":9007199254740993}}}`)
		if read.Recovery != tool.RecoveryRerun || write.Recovery != tool.RecoveryFail || read.Approval != tool.ApprovalNone ||
			write.Approval != tool.ApprovalManual || read.Description != "reads" || write.OutputSchema == nil {
			t.Errorf("the restored tools are %+v and %+v", read.Capability, write.Capability)
		}
		if read.Gate.IsOpen() || write.Gate.IsOpen() {
			t.Error("the gate is open before the server has answered")
		}
		opened := false
		read.Gate.OnOpen(func() { opened = true })
		close(releasec)
		synctest.Wait()
		if !opened || !write.Gate.IsOpen() {
			t.Error("the gate is closed after the server has answered")
		}
		if again, _ := fx.publisher.reg.Resolve("srv.read"); again != read {
			t.Error("an unchanged tool was replaced")
		}
		if out, err := fx.call(fx.Context(), new(job), "srv.read", `{}`); err != nil || !strings.Contains(out, "done") {
			t.Errorf("a call returns %s, %v", out, err)
		}
	})
}

// A list is used only for the server that it is of, and only if it can be read.
func TestUnusableListIsIgnored(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(t *testing.T, file string)
		config Config
		log    string
	}{
		"another directory":     {config: Config{Dir: "/"}},
		"no file":               {change: func(t *testing.T, file string) { must(t, os.Remove(file)) }},
		"cut off":               {change: func(t *testing.T, file string) { must(t, os.Truncate(file, 100)) }, log: "cannot be read"},
		"another version":       {change: func(t *testing.T, file string) { must(t, os.WriteFile(file, []byte(`{"version":2}`), 0o600)) }, log: "version 2, not 1"},
		"more than the maximum": {change: func(t *testing.T, file string) { must(t, os.Truncate(file, maxSaved+1)) }, log: "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			file := saveList(t)
			if tt.change != nil {
				tt.change(t, file)
			}
			tt.config.ListFile = file
			var releasec chan struct{}
			bubble(t, tt.config, func(_ int, conn net.Conn) { <-releasec; answers(conn) }, func(fx *fixture) {
				releasec = make(chan struct{})
				fx.start()
				fx.want("the names without the server", fx.publisher.names(), "")
				if got := fx.log.String(); !strings.Contains(got, tt.log) || tt.log == "" && strings.Contains(got, "saved list") {
					t.Errorf("the log is %s, want %q", got, tt.log)
				}
				close(releasec)
				waitIdle()
				fx.want("the names with the server", fx.publisher.names(), "srv.read srv.write")
			})
			if saved, _, err := readList(file); err != nil || len(saved.Tools) != 2 {
				t.Errorf("after the next list the file has %+v, %v, want two tools", saved, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A start that is interrupted publishes no saved tools, and Close opens the gate: waiting jobs fail.
func TestCloseOpensTheGate(t *testing.T) {
	file := saveList(t)
	bubble(t, Config{ListFile: file}, func(int, net.Conn) {}, func(fx *fixture) {
		ctx, cancel := context.WithCancel(fx.Context())
		cancel()
		must(t, fx.src.Start(ctx, fx.publisher.publish))
		fx.want("the names after an interrupted start", fx.publisher.names(), "")
		must(t, fx.src.publishRestored())
		fx.src.Close()
		read, _ := fx.publisher.reg.Resolve("srv.read")
		if !read.Gate.IsOpen() {
			t.Error("the gate is closed after Close")
		}
		_, err := fx.call(fx.Context(), new(job), "srv.read", `{}`)
		fx.wantCode("a call after Close", err, arcp.CodeUnavailable, true)
	})
}
