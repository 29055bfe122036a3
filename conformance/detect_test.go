package conformance

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/transport"
)

// firstAnswers is a server that answers the first frame of a connection by its type, and closes the
// connection after any other frame.
func firstAnswers(t *testing.T, answers map[arcp.Type]string) Target {
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	return Target{Token: fakeToken, Dial: func(context.Context) (transport.Conn, error) {
		near, far := transport.Pipe(transport.Limits{})
		serving.Go(func() {
			if frame, err := far.Read(); err == nil {
				if answer := answers[arcp.Type(typeOf(frame))]; answer != "" {
					_ = far.Write([]byte(answer)) // the next line fails too
					_ = far.Flush()               // the client sees the end of the connection
				}
			}
			_ = far.Close(transport.ClosePolicy, "not that") // the client may have gone before
		})
		return near, nil
	}}
}

func frameWith(typ arcp.Type, payload string) string {
	return `{"arcp":"1.1","id":"m1","type":"` + string(typ) + `","timestamp":"2026-01-02T03:04:05Z","payload":` + payload + `}`
}

// The dialect is the one in which the server answers, also if it refuses the session.
func TestDetectDialect(t *testing.T) {
	refusal := func(typ arcp.Type, code arcp.Code) string {
		return frameWith(typ, `{"code":"`+string(code)+`","message":"no `+fakeToken+`","retryable":false}`)
	}
	hello := refusal(script.SessionError, arcp.CodeUnauthenticated)
	for _, c := range []struct {
		why     string
		answers map[arcp.Type]string
		want    string
	}{
		{"a refusal", map[arcp.Type]string{arcp.SessionOpen: refusal(arcp.SessionRejected, arcp.CodeUnauthenticated), script.SessionHello: hello}, "rfc"},
		{"a challenge", map[arcp.Type]string{arcp.SessionOpen: frameWith(arcp.SessionChallenge, `{}`)}, "rfc"},
		{"a nack of a server that is full", map[arcp.Type]string{arcp.SessionOpen: refusal(arcp.Nack, arcp.CodeResourceExhausted)}, "rfc"},
		{"a closed connection", map[arcp.Type]string{script.SessionHello: hello}, "draft"},
		{"the error of a draft server", map[arcp.Type]string{arcp.SessionOpen: refusal(script.SessionError, arcp.CodeInvalidRequest), script.SessionHello: hello}, "draft"},
		{"a nack of an unknown type", map[arcp.Type]string{arcp.SessionOpen: refusal(arcp.Nack, arcp.CodeUnimplemented), script.SessionHello: hello}, "draft"},
	} {
		d, err := DetectDialect(t.Context(), firstAnswers(t, c.answers), Options{})
		if err != nil || d.String() != c.want {
			t.Errorf("%s: the dialect is %s, %v, want %s", c.why, d, err, c.want)
		}
	}
	if d, err := DetectDialect(t.Context(), fakeTarget(t), Options{}); err != nil || d != arcp.DialectRFC {
		t.Errorf("an accepted session: the dialect is %s, %v", d, err)
	}

	_, err := DetectDialect(t.Context(), firstAnswers(t, map[arcp.Type]string{script.SessionHello: refusal(arcp.Nack, arcp.CodeUnimplemented)}), Options{})
	for _, want := range []string{"session.open of the dialect rfc: ", "not that", "session.hello of the dialect draft: got {", "UNIMPLEMENTED"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), fakeToken) {
			t.Errorf("neither: the error is %v, want %q and no token", err, want)
		}
	}
}

// A second server that does not answer in the dialect of the first one is an error, and not a list of differences.
func TestAgainstServerOfAnotherDialect(t *testing.T) {
	draft := firstAnswers(t, map[arcp.Type]string{script.SessionHello: frameWith(script.SessionWelcome, `{}`)})
	_, err := RunAgainst(t.Context(), fakeTarget(t), draft, Options{IDs: []string{"control.ping"}})
	if want := "the second server: session.open of the dialect rfc: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %v, want %s", err, want)
	}
}
