package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// A server with few descriptors is flooded with connections that never become sessions.
// Existing sessions continue and their jobs are stored. Other clients can connect when the
// requests of the flood have reached their deadline.
func TestFloodWithoutSessions(t *testing.T) {
	const files = 256
	bin := binaryAfter(t, fmt.Sprintf("ulimit -n %d", files))
	admin := freeAddr(t)
	p := startServer(t, bin, t.TempDir(), "--admin", admin)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	before := reconnecting(ctx, t, p.url)

	for range 2 * files {
		conn, err := net.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		// Fails where the server has refused the connection.
		_, _ = io.WriteString(conn, "POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nh")
	}
	large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 64<<10))
	for range 200 {
		job, err := before.Invoke(ctx, client.InvokeParams{Tool: "demo.echo", Arguments: arcp.Raw(large)})
		if err == nil {
			_, err = job.Wait(ctx)
		}
		if err != nil {
			t.Fatalf("a job of the session that was there before: %v", err)
		}
	}
	for {
		c, err := client.Dial(ctx, p.url, client.Options{Auth: client.Auth{Scheme: "bearer", Token: crashToken}})
		if err == nil {
			c.Abort()
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("nobody else can connect: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	metrics, err := io.ReadAll(resp.Body)
	if refused := regexp.MustCompile(`arcp_rate_limited_total\{limit="connections"\} (\d+)`).FindSubmatch(metrics); err != nil || refused == nil {
		t.Errorf("no connection was refused (%v)", err)
	}
}
