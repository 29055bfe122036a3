package chaos

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// check resumes the session once more from the last acknowledged event. All later events must be
// replayed, and the artifacts that the session was told of must be there.
func (c *client) check(ctx context.Context) {
	last := c.stream.Last()
	for !c.connect(ctx) {
		if c.reportFindings(); ctx.Err() != nil || c.reported > 0 {
			return
		}
		sleep(ctx, redialDelay)
	}
	defer c.disconnect()
	for c.stream.Position() < last {
		m, ok := c.next(ctx, answerWait)
		if !ok {
			c.stream.find(RuleLost, "only the events from %[2]d to %[3]d of %[1]d were replayed", last, c.acked+1, c.stream.Position())
			return
		}
		c.handle(m)
	}
	if c.library.dialect() == arcp.DialectRFC {
		artifactCheck{c}.run(ctx)
	}
}

// maxFetches bounds the artifacts that a session fetches at the end, the newest ones.
const maxFetches = 20

// artifactCheck compares the artifacts that were announced to a session with their content.
type artifactCheck struct{ *client }

func (c artifactCheck) run(ctx context.Context) {
	list := c.stream.artifacts
	for _, a := range list[max(len(list)-maxFetches, 0):] {
		request := c.compose(arcp.ArtifactFetch, arcp.ArtifactFetchPayload{ArtifactID: a.ArtifactID})
		if !c.write(request) {
			c.stream.find(RuleLost, "the connection broke at the fetch of %s", a.ArtifactID)
			return
		}
		m, ok := c.await(ctx, request.ID)
		switch {
		case !ok:
			c.stream.find(RuleAnswer, "the fetch of %s was not answered", a.ArtifactID)
			return
		case m.Type != arcp.ArtifactPut:
			c.stream.find(RuleLost, "the artifact %s, which was announced, is answered with %s %s", a.ArtifactID, m.Type, m.Payload)
			continue
		}
		p, err := arcp.DecodePayload[arcp.ArtifactPutPayload](&m.Envelope)
		content, decoding := base64.StdEncoding.DecodeString(p.Data)
		digest := sha256.Sum256(content)
		if err = cmp.Or(err, decoding); err != nil || uint64(len(content)) != a.Size || hex.EncodeToString(digest[:]) != a.SHA256 {
			c.stream.find(RuleChanged, "the artifact %s of %d bytes has %d bytes and the digest %x (%v)", a.ArtifactID, a.Size, len(content), digest, err)
		}
	}
}

// await waits for the answer to a request.
func (c artifactCheck) await(ctx context.Context, id arcp.MessageID) (m *message, ok bool) {
	for deadline := time.Now().Add(answerWait); ; {
		m, ok := c.next(ctx, time.Until(deadline))
		if !ok || m.CorrelationID == id {
			return m, ok
		}
		c.handle(m)
	}
}

// list lists all jobs of the principal.
func (c *client) list(ctx context.Context) (all []arcp.JobEntry, ok bool) {
	for !c.connect(ctx) {
		if ctx.Err() != nil {
			return nil, false
		}
		sleep(ctx, redialDelay)
	}
	defer c.disconnect()
	for cursor := ""; ; {
		page, ok := c.page(ctx, cursor)
		if !ok {
			return nil, false
		}
		all = append(all, page.Jobs...)
		if page.NextCursor == nil {
			return all, true
		}
		cursor = *page.NextCursor
	}
}

func (c *client) page(ctx context.Context, cursor string) (page arcp.SessionJobsPayload, ok bool) {
	request := c.compose(arcp.SessionListJobs, arcp.SessionListJobsPayload{Limit: new(uint32(1000)), Cursor: cursor})
	if !c.write(request) {
		return page, false
	}
	for deadline := time.Now().Add(answerWait); ; {
		m, ok := c.next(ctx, time.Until(deadline))
		if !ok {
			return page, false
		}
		c.stream.Receive(m.frame, &m.Envelope)
		if m.CorrelationID == request.ID && m.Type == arcp.SessionJobs {
			page, err := arcp.DecodePayload[arcp.SessionJobsPayload](&m.Envelope)
			return page, err == nil
		}
	}
}
