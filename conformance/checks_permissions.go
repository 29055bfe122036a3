package conformance

import (
	"context"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// permitArgs are the arguments of a demo.permit that does not hold what it gets.
func permitArgs(permission, resource, operation string, seconds int) map[string]any {
	return map[string]any{"permission": permission, "resource": resource, "operation": operation, "lease_seconds": seconds,
		"hold_ms": 0, "expires_in_ms": askMS}
}

// refund is the permission that the checks ask for.
var refund = arcp.PermissionGrantPayload{Permission: "order.refund", Resource: "order:7*", Operation: "refund", LeaseSeconds: 60}

// permit submits a job that asks for refund and returns the question.
func (c *Conn) permit(with ...func(args map[string]any)) (submit arcp.MessageID, question *Frame) {
	args := permitArgs(refund.Permission, refund.Resource, refund.Operation, int(refund.LeaseSeconds))
	for _, change := range with {
		change(args)
	}
	submit = c.submitWith("demo.permit", args, arcp.SubmitOptions{OnDisconnect: "cancel"})
	job := c.AwaitStarted(submit)
	return submit, c.about("the job asks for the permission", arcp.PermissionRequest, job)
}

// argument sets an argument of a tool.
func argument(name string, value any) func(map[string]any) {
	return func(args map[string]any) { args[name] = value }
}

// held makes demo.permit hold what it gets for longer than any check takes.
var held = argument("hold_ms", 120_000)

// granted grants what was asked and returns the lease.
func (c *Conn) granted(question *Frame, p arcp.PermissionGrantPayload) arcp.LeaseGrantedPayload {
	f := c.Await("a grant is answered with lease.granted", arcp.LeaseGranted, c.grant(question, p))
	want(c.t, "lease.granted is of the job that asked", f.JobID, question.JobID)
	return payload[arcp.LeaseGrantedPayload](c.t, f)
}

// permitted is what demo.permit returns.
func (c *Conn) permitted(submit arcp.MessageID) arcp.LeaseGrantedPayload {
	var l arcp.LeaseGrantedPayload
	c.result(&l, c.outcomeOf(submit))
	return l
}

func permissionRequest(_ context.Context, t *T) {
	c := t.Open()
	args := permitArgs("order.refund", "order:7*", "refund", 60)
	args["reason"] = "they ask for it"
	submit := c.Submit("demo.permit", args)
	accepted := c.Expect("a job is accepted before it asks", arcp.JobAccepted, submit)
	c.Expect("and started", arcp.JobStarted, submit)
	f := c.Expect("then it asks", arcp.PermissionRequest, "")
	p := payload[arcp.PermissionRequestPayload](t, f)
	want(t, "the question is the job's", f.JobID, accepted.JobID)
	want(t, "what is asked of people is critical", f.Priority, arcp.PriorityCritical)
	want(t, "the permission is the one asked for", p.Permission, "order.refund")
	want(t, "the resource is the one asked for", p.Resource, "order:7*")
	want(t, "the operation is the one asked for", p.Operation, "refund")
	want(t, "the reason is told", p.Reason, "they ask for it")
	t.Want("the time is told", p.RequestedLeaseSeconds != nil && *p.RequestedLeaseSeconds == 60, "got %s", f.Payload)
	t.Want("the question has a name for the tools", p.ApprovalID != "", "approval_id is empty")
	c.deny(f, "no")
	c.Follow(submit)
}

func permissionBlocked(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit()
	want(t, "a job that asks is blocked", c.stateOf(question.JobID), string(arcp.StateBlocked))
	c.granted(question, refund)
	c.permitted(submit)
	want(t, "then it goes on", c.stateOf(question.JobID), string(arcp.StateCompleted))
}

func permissionGrant(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit()
	f := c.Expect("a grant is answered with lease.granted", arcp.LeaseGranted, c.grant(question, refund))
	l := payload[arcp.LeaseGrantedPayload](t, f)
	t.Want("the lease has an id", arcp.HasPrefix(string(l.LeaseID), arcp.LeasePrefix), "it is %q", l.LeaseID)
	want(t, "the permission is granted", l.Permission, refund.Permission)
	want(t, "for the resource", l.Resource, refund.Resource)
	want(t, "and the operation", l.Operation, refund.Operation)
	t.wantLasts(question, f, l.ExpiresAt, 60*time.Second)
	result := c.permitted(submit)
	want(t, "the job has the lease", result.LeaseID, l.LeaseID)
	t.Want("with its end", result.ExpiresAt.Equal(l.ExpiresAt), "got %v, want %v", result.ExpiresAt, l.ExpiresAt)
}

// wantLasts wants something that was granted between two events to last for d.
func (t *T) wantLasts(asked, granted *Frame, end time.Time, d time.Duration) {
	const rounding = time.Second
	first, last := asked.Timestamp.Add(d-rounding), granted.Timestamp.Add(d+rounding)
	t.Want("it lasts as long as was granted", end.After(first) && end.Before(last), "it ends at %v, want it between %v and %v", end, first, last)
}

func permissionNarrower(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit()
	less := refund
	less.Resource, less.LeaseSeconds = "order:71", 30
	f := c.Await("less may be granted", arcp.LeaseGranted, c.grant(question, less))
	l := payload[arcp.LeaseGrantedPayload](t, f)
	want(t, "what is granted is less", l.Resource, less.Resource)
	t.wantLasts(question, f, l.ExpiresAt, 30*time.Second)
	want(t, "the job gets no more", c.permitted(submit).Resource, less.Resource)
}

func permissionLonger(_ context.Context, t *T) {
	c := t.Open()
	for _, seconds := range []struct{ asked, granted, lasts int }{{60, 6000, 60}, {86_400, 86_400, 3600}} {
		submit, question := c.permit(argument("lease_seconds", seconds.asked))
		p := refund
		p.LeaseSeconds = uint64(seconds.granted)
		f := c.Await("the permission may be granted", arcp.LeaseGranted, c.grant(question, p))
		t.wantLasts(question, f, payload[arcp.LeaseGrantedPayload](t, f).ExpiresAt, time.Duration(seconds.lasts)*time.Second)
		c.permitted(submit)
	}
}

func permissionWider(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit()
	for _, change := range []func(p *arcp.PermissionGrantPayload){
		func(p *arcp.PermissionGrantPayload) { p.Resource = "order:*" },
		func(p *arcp.PermissionGrantPayload) { p.Resource = "order:**" },
		func(p *arcp.PermissionGrantPayload) { p.Resource = "order:7*/**" },
		func(p *arcp.PermissionGrantPayload) { p.Resource = "order:8" },
		func(p *arcp.PermissionGrantPayload) { p.Resource = "" },
		func(p *arcp.PermissionGrantPayload) { p.Permission = "order.delete" },
		func(p *arcp.PermissionGrantPayload) { p.Operation = "delete" },
		func(p *arcp.PermissionGrantPayload) { p.LeaseSeconds = 0 },
	} {
		p := refund
		change(&p)
		c.refuses("what was not asked for is not granted", c.grant(question, p), arcp.CodeInvalidArgument, arcp.CodeInvalidRequest)
	}
	want(t, "the question stays", c.stateOf(question.JobID), string(arcp.StateBlocked))
	c.granted(question, refund)
	c.permitted(submit)
}

func permissionDeny(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit()
	c.taken(c.deny(question, "not on a friday"))
	end := c.endsWith("a denied permission fails the operation", submit, arcp.CodePermissionDenied)
	wantText(t, "the job is told why", end.Message, "not on a friday")
	want(t, "a denial is final", end.Retryable, false)
}

func permissionExpires(_ context.Context, t *T) {
	c := t.Human()
	submit, question := c.permit(argument("expires_in_ms", 50))
	c.withdrawn("who was asked is told that it is over", question, arcp.CodeDeadlineExceeded)
	c.endsWith("nothing is granted by itself", submit, arcp.CodePermissionDenied)
	c.refuses("it is too late then", c.grant(question, refund), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
}

func permissionSilentExpiry(_ context.Context, t *T) {
	c := t.Open()
	submit, _ := c.permit(argument("expires_in_ms", 50))
	c.Expect("nothing of the question comes but the end", arcp.JobFailed, submit)
}

func permissionOtherSession(_ context.Context, t *T) {
	owner, other := t.Human(), t.Human()
	submit, question := owner.permit(held)
	same := other.about("sessions with a person are asked", arcp.PermissionRequest, question.JobID)
	want(t, "the question is the same", same.ID, question.ID)
	want(t, "and says the same", string(same.Payload), string(question.Payload))
	l := other.granted(same, refund)
	granted := owner.about("who submitted the job is told", arcp.LeaseGranted, question.JobID)
	want(t, "and the message is its own", granted.CorrelationID, submit)
	want(t, "the lease is the same", payload[arcp.LeaseGrantedPayload](t, granted).LeaseID, l.LeaseID)
	owner.withdrawn("who was asked too is told that it is answered", question, arcp.CodeCancelled)
	other.nothingAbout("who has answered is not told", question.JobID)
	owner.finish(submit, question.JobID)
}

func permissionNobodyElse(_ context.Context, t *T) {
	owner, plain, stranger := t.Open(), t.Open(), t.Human(as(t.target.OtherToken))
	submit, question := owner.permit(held)
	owner.granted(question, refund)
	for who, c := range map[string]*Conn{"without a person": plain, "of another principal": stranger} {
		c.nothingAbout("a session "+who+" is not asked, and not told", question.JobID)
	}
	t.Human(as(t.target.OtherToken)).nothingAbout("nor is one that comes later", question.JobID)
	owner.finish(submit, question.JobID)
}

func permissionLate(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit(held)
	c.granted(question, refund)
	c.refuses("a permission is granted once", c.grant(question, refund), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
	c.refuses("and not denied then", c.deny(question, "no"), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
	c.finish(submit, question.JobID)
	c.refuses("after the job there is no question", c.grant(question, refund), arcp.CodeFailedPrecondition, arcp.CodeNotFound)
}

func permissionUnknown(_ context.Context, t *T) {
	c := t.Open()
	c.refuses("nothing was asked", c.Send(arcp.PermissionGrant, refund, toNobody), arcp.CodeNotFound)
	c.refuses("nothing was asked", c.Send(arcp.PermissionDeny, arcp.PermissionDenyPayload{Permission: "p", Reason: "no"}, toNobody), arcp.CodeNotFound)
}

func permissionForeign(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Human(as(t.target.OtherToken))
	submit, question := owner.permit()
	stranger.refuses("what one may not see is not there", stranger.grant(question, refund), arcp.CodeNotFound)
	stranger.refuses("what one may not see is not there", stranger.deny(question, "no"), arcp.CodeNotFound)
	want(t, "the question stays", owner.stateOf(question.JobID), string(arcp.StateBlocked))
	owner.granted(question, refund)
	owner.permitted(submit)
}

func permissionWrongAnswer(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit()
	c.refuses("a permission is no value", c.respond(question, true), arcp.CodeInvalidArgument)
	c.refuses("a permission is no choice", c.choose(question, "approve"), arcp.CodeInvalidArgument)
	c.granted(question, refund)
	c.permitted(submit)
}

func (c *Conn) refresh(lease arcp.LeaseID, seconds uint64) arcp.MessageID {
	return c.Send(arcp.LeaseRefresh, arcp.LeaseRefreshPayload{LeaseID: lease, AdditionalSeconds: seconds})
}

func permissionRefresh(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit(held)
	l := c.granted(question, refund)
	extended := func(seconds uint64) arcp.LeaseExtendedPayload {
		f := c.Await("a refresh is answered with lease.extended", arcp.LeaseExtended, c.refresh(l.LeaseID, seconds))
		want(t, "it is the job's", f.JobID, question.JobID)
		return payload[arcp.LeaseExtendedPayload](t, f)
	}
	p := extended(120)
	want(t, "the lease is the one asked for", p.LeaseID, l.LeaseID)
	t.Want("it ends so much later", p.ExpiresAt.Equal(l.ExpiresAt.Add(2*time.Minute)), "it ended at %v, and now at %v", l.ExpiresAt, p.ExpiresAt)
	day := l.ExpiresAt.Add(24*time.Hour - time.Duration(refund.LeaseSeconds)*time.Second)
	p = extended(1_000_000)
	t.Want("no permission lasts longer than a day", !p.ExpiresAt.After(day.Add(time.Second)), "it ends at %v, a day is over at %v", p.ExpiresAt, day)
	c.refuses("nothing is no time", c.refresh(l.LeaseID, 0), arcp.CodeInvalidArgument, arcp.CodeInvalidRequest)
	c.finish(submit, question.JobID)
}

const noLease = arcp.LeaseID("lease_00000000000000000000000000")

func permissionRefreshRefused(_ context.Context, t *T) {
	owner, other, stranger := t.Open(), t.Human(), t.Human(as(t.target.OtherToken))
	submit, question := owner.permit(held)
	l := owner.granted(question, refund)
	other.refuses("another session does not extend it", other.refresh(l.LeaseID, 60), arcp.CodePermissionDenied)
	stranger.refuses("for another principal it is not there", stranger.refresh(l.LeaseID, 60), arcp.CodeNotFound)
	owner.refuses("what was never granted is not there", owner.refresh(noLease, 60), arcp.CodeNotFound)
	owner.finish(submit, question.JobID)
}

func permissionRefreshEnded(_ context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit()
	l := c.granted(question, refund)
	c.permitted(submit)
	c.refuses("a permission ends with its job", c.refresh(l.LeaseID, 60), arcp.CodeNotFound, arcp.CodeLeaseExpired)
}

func (c *Conn) revoke(lease arcp.LeaseID) arcp.MessageID {
	return c.Send(arcp.LeaseRevoked, arcp.LeaseRevokedPayload{LeaseID: lease, Reason: "conformance"})
}

// permissionRevoke needs demo.permit to hold the lease. It gets none, and ends, if
// what was granted is taken back before it hears of it: then all is done again.
func permissionRevoke(_ context.Context, t *T) {
	c := t.Open()
	for range 20 {
		submit, question := c.permit(held)
		l := c.granted(question, refund)
		f := c.Await("it is answered with lease.revoked", arcp.LeaseRevoked, c.revoke(l.LeaseID))
		want(t, "it is the job's", f.JobID, question.JobID)
		p := payload[arcp.LeaseRevokedPayload](t, f)
		want(t, "the lease is the one that was taken back", p.LeaseID, l.LeaseID)
		want(t, "with the reason", p.Reason, "conformance")
		more := c.Answer("it cannot be extended any more", c.refresh(l.LeaseID, 60))
		again := c.Answer("and not taken back again", c.revoke(l.LeaseID))
		if again.Type == arcp.Nack && payload[arcp.ErrorPayload](t, again).Code == arcp.CodeNotFound {
			c.endsWith("a lease is forgotten only with its job", submit, arcp.CodeLeaseRevoked)
			continue
		}
		for _, f := range []*Frame{more, again} {
			want(t, "what is done with a lease that was taken back is", f.Type, arcp.Nack)
			want(t, "a refusal is no event of a job", f.EventSeq, 0)
			t.wantCode("what is done with a lease that was taken back is", f, arcp.CodeLeaseRevoked)
		}
		c.finish(submit, question.JobID)
		return
	}
	t.Failf("demo.permit never held what it was granted")
}

// permissionRevokedUse has demo.permit look whether it still has what was taken
// back. How long it waits with that depends on how slow the server is.
func permissionRevokedUse(_ context.Context, t *T) {
	c := t.Open()
	for hold := 300; ; hold *= 10 {
		submit, question := c.permit(argument("hold_ms", hold))
		l := c.granted(question, refund)
		f := c.Answer("a lease that is taken back is", c.revoke(l.LeaseID))
		if f.Type == arcp.Nack && hold < 10_000 {
			c.permitted(submit) // it was too late
			continue
		}
		want(t, "a lease that is taken back is", f.Type, arcp.LeaseRevoked)
		c.endsWith("the job has it no more", submit, arcp.CodeLeaseRevoked)
		return
	}
}

func permissionRevokeRefused(_ context.Context, t *T) {
	owner, stranger := t.Open(), t.Human(as(t.target.OtherToken))
	submit, question := owner.permit(held)
	l := owner.granted(question, refund)
	stranger.refuses("for another principal it is not there", stranger.revoke(l.LeaseID), arcp.CodeNotFound)
	owner.refuses("what was never granted is not there", owner.revoke(noLease), arcp.CodeNotFound)
	owner.Await("it is still there", arcp.LeaseExtended, owner.refresh(l.LeaseID, 1))
	owner.finish(submit, question.JobID)
}

func permissionFollowed(_ context.Context, t *T) {
	owner, follower := t.Open(), t.Open()
	submit, question := owner.permit()
	follower.subscribe(arcp.JobSubscribePayload{JobID: question.JobID, History: true})
	owner.granted(question, refund)
	owner.permitted(submit)
	follower.copies(question.JobID)
	follower.wantSeen("a follower sees what is for everybody", question.JobID, arcp.JobAccepted, arcp.JobStarted, arcp.LeaseGranted, arcp.JobCompleted)
}

func permissionRestart(ctx context.Context, t *T) {
	c := t.Open()
	submit, question := c.permit(held, argument("lease_seconds", 3600))
	hour := refund
	hour.LeaseSeconds = 3600
	l := c.granted(question, hour)
	c = t.restarted(ctx, c)
	c.Await("the job is started again", arcp.JobStarted, submit)
	c.nothingAbout("it has what it was granted", question.JobID)
	f := c.Await("and its session extends it", arcp.LeaseExtended, c.refresh(l.LeaseID, 60))
	end := payload[arcp.LeaseExtendedPayload](t, f).ExpiresAt
	t.Want("it ends so much later", end.Equal(l.ExpiresAt.Add(time.Minute)), "it ended at %v, and now at %v", l.ExpiresAt, end)
	c.finish(submit, question.JobID)
}

// elevate asks for the session to be trusted more.
func (c *Conn) elevate(level string) arcp.MessageID { return c.elevateFor(level, 1) }

func (c *Conn) elevateFor(level string, seconds uint64) arcp.MessageID {
	return c.Send(arcp.PermissionRequest, arcp.PermissionRequestPayload{Permission: "trust.elevate." + level, Resource: "session",
		Operation: "elevate", Reason: "conformance", RequestedLeaseSeconds: &seconds})
}

// gateOf reads until a session is asked to trust another one.
func (c *Conn) gateOf(session arcp.SessionID) *Frame {
	for {
		f := c.Await("somebody else is asked", arcp.HumanChoiceRequest, "")
		if p := payload[arcp.HumanChoiceRequestPayload](c.t, f); containsID(p.Prompt, session) {
			return f
		}
	}
}

func permissionElevate(_ context.Context, t *T) {
	c, other := t.Human(), t.Human()
	id := c.elevate("privileged")
	question := other.gateOf(c.Session)
	c.nothingAbout("who asks is not asked", question.JobID)
	c.refuses("who asks never approves", c.choose(question, "approve"), arcp.CodePermissionDenied)
	other.taken(other.choose(question, "approve"))
	f := c.Await("the elevation is a lease", arcp.LeaseGranted, id)
	l := payload[arcp.LeaseGrantedPayload](t, f)
	want(t, "of what was asked for", l.Permission, "trust.elevate.privileged")
	want(t, "for the session", l.Resource, "session")
	t.wantLasts(question, f, l.ExpiresAt, time.Second)
}

func permissionElevateDenied(_ context.Context, t *T) {
	c, other := t.Human(), t.Human()
	id := c.elevate("privileged")
	other.taken(other.choose(other.gateOf(c.Session), "deny"))
	f := c.Answer("a denial is answered", id)
	want(t, "a denial is told as one", f.Type, arcp.PermissionDeny)
	want(t, "it is no event of a job", f.EventSeq, 0)
	want(t, "it names what was asked for", payload[arcp.PermissionDenyPayload](t, f).Permission, "trust.elevate.privileged")
}

func permissionElevateRevoked(_ context.Context, t *T) {
	c, other := t.Human(), t.Human()
	id := c.elevateFor("privileged", 600)
	question := other.gateOf(c.Session)
	other.taken(other.choose(question, "approve"))
	l := payload[arcp.LeaseGrantedPayload](t, c.Await("the elevation is a lease", arcp.LeaseGranted, id))
	other.Await("who has approved takes it back", arcp.LeaseRevoked, other.revoke(l.LeaseID))
	told := c.about("the session is told", arcp.LeaseRevoked, question.JobID)
	want(t, "of its lease", payload[arcp.LeaseRevokedPayload](t, told).LeaseID, l.LeaseID)
	c.refuses("it is not its own to extend", c.refresh(l.LeaseID, 60), arcp.CodePermissionDenied, arcp.CodeLeaseRevoked, arcp.CodeNotFound)
}

func permissionElevateWrong(_ context.Context, t *T) {
	c := t.Open()
	for _, level := range []string{"divine", "", "Privileged"} {
		c.ExpectNack("a level of trust is one of the four", c.elevate(level), arcp.CodeInvalidArgument)
	}
	c.ExpectNack("nothing is won by a lower level", c.elevate("untrusted"), arcp.CodeFailedPrecondition, arcp.CodeInvalidArgument)
	ask := arcp.PermissionRequestPayload{Permission: "trust.elevate.privileged", Resource: "server", Operation: "elevate"}
	c.ExpectNack("it is the session that is trusted", c.Send(arcp.PermissionRequest, ask), arcp.CodeInvalidArgument)
	ask = arcp.PermissionRequestPayload{Permission: "order.refund", Resource: "session", Operation: "elevate"}
	c.ExpectNack("nothing else is a client's to ask for", c.Send(arcp.PermissionRequest, ask), arcp.CodeUnimplemented)
}
