package conformance

import (
	"context"
	"fmt"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/internal/clip"
)

// DetectDialect returns the dialect in which a server answers. It sends session.open of RFC 0001
// and, if the answer is not of that dialect, session.hello of the draft 1.1 on another connection.
// A refusal in a dialect is an answer in it. Target.Dialect is not used. Options.Timeout bounds the
// wait for each answer. An error means that the server cannot be reached, or answers in neither
// dialect; it says what came to each message.
func DetectDialect(ctx context.Context, target Target, opts Options) (arcp.Dialect, error) {
	r := &runner{target: &target, opts: &opts}
	if err := r.reach(ctx); err != nil {
		return 0, err
	}
	var wrong []error
	for _, d := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
		err := r.speaks(ctx, d)
		if err == nil {
			return d, nil
		}
		wrong = append(wrong, err)
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return 0, fmt.Errorf("conformance: the server answers in no dialect: %w; %w", wrong[0], wrong[1])
}

// reach connects once. The connection only proves that a server listens.
func (r *runner) reach(ctx context.Context) error {
	conn, err := r.target.dial(ctx)
	if err != nil {
		return fmt.Errorf("conformance: connect: %w", err)
	}
	_ = conn.Abort() // nothing was sent
	return nil
}

// answers returns an error if the server cannot be reached, or does not answer in the dialect of the
// target.
func (r *runner) answers(ctx context.Context) error {
	if err := r.reach(ctx); err != nil {
		return err
	}
	return r.speaks(ctx, r.target.Dialect)
}

// speaks returns an error with what came if the server does not answer the first message of a
// dialect in that dialect.
func (r *runner) speaks(ctx context.Context, d arcp.Dialect) error {
	var came string
	failure := r.observe(ctx, &server{}, func(t *checkRun) { came = t.openIn(d) })
	if came += failure; came == "" { // without a failure openIn has returned
		return nil
	}
	first := arcp.SessionOpen
	if d == arcp.DialectDraft {
		first = script.SessionHello
	}
	return fmt.Errorf("%s of the dialect %s: %s", first, d, came)
}

// openIn opens a session in a dialect. It returns what came instead of an answer in the dialect, or
// "".
func (run *checkRun) openIn(d arcp.Dialect) (came string) {
	var c connection
	var judge func(text []byte) // recognizes an accepted session, so that it is closed
	if d == arcp.DialectDraft {
		conn := run.DialDraft(nil)
		c, judge = conn, conn.validate
		conn.send(script.SessionHello, run.target.library().Hello(run.target.Token))
	} else {
		conn := run.Dial()
		c, judge = conn, func(text []byte) { conn.validate(text) }
		conn.Send(arcp.SessionOpen, run.openPayload())
	}
	defer closeSession(c)
	l := c.transportLink()
	text, err := l.read()
	if err != nil {
		return l.ending(err)
	}
	judge(text)
	if env, err := script.DecodeLoosely(text); err != nil || !answersIn(d, &received{Envelope: env}) {
		return "got " + clip.Ellipsis(run.tr.redact(string(text)), maxGot)
	}
	return ""
}

// answersIn reports whether the first frame of a server is of a dialect.
func answersIn(d arcp.Dialect, f *received) bool {
	switch {
	case d == arcp.DialectDraft:
		return f.Type == script.SessionWelcome || f.Type == script.SessionError
	case f.Type == arcp.Nack: // with these codes the server may not know session.open
		return !slices.Contains([]arcp.Code{arcp.CodeUnimplemented, arcp.CodeInvalidRequest, arcp.CodeInvalidArgument}, f.errorCode())
	}
	return slices.Contains([]arcp.Type{arcp.SessionAccepted, arcp.SessionChallenge, arcp.SessionRejected, arcp.SessionUnauthenticated}, f.Type)
}
