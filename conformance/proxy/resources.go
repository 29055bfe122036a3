package proxy

import "github.com/arcpd/arcpd/arcp"

// resourceFaults break the rules for the tools for resources and leases on them.
var resourceFaults = []Fault{
	{Name: "resources of any status", Says: "the status of a resource is lost", Shows: []string{"resources.register"}, newRewriter: withoutArgument("registry.register", "status")},
	{Name: "the same page of resources", Says: "a cursor of registry.list is ignored", Shows: []string{"resources.list"}, newRewriter: withoutArgument("registry.list", "cursor")},
	{Name: "calls out of order", Says: "of two registrations the later one happens first", Shows: []string{"resources.order"},
		newRewriter: func() rewriter {
			exchange := swap(registers, registers, false)()
			return rewriter{out: exchange.in}
		}},
	{Name: "resources of any kind", Says: "the kind asked of registry.list is ignored", Shows: []string{"resources.filter"}, newRewriter: withoutArgument("registry.list", "kind")},
	{Name: "resources of one's own", Says: "the session asked of registry.list is ignored", Shows: []string{"resources.of-a-session"}, newRewriter: withoutArgument("registry.list", "session_id")},
	{Name: "show resources to everybody", Says: "another principal's resources and leases are there", Shows: []string{"resources.foreign", "resources.unknown", "resources.lease-foreign"},
		newRewriter: succeeds(arcp.CodeNotFound)},
	{Name: "register anything", Says: "what makes no sense is registered and leased", Shows: []string{"resources.wrong", "resources.lease-wrong"},
		newRewriter: succeeds(arcp.CodeInvalidArgument)},
	{Name: "deregister in vain", Says: "nothing is ever deregistered", Shows: []string{"resources.deregister"}, newRewriter: replaced(`"removed":true`, `"removed":false`)},
	{Name: "revive nothing", Says: "what is active is released", Shows: []string{"resources.revive", "resources.lease", "resources.restart"},
		newRewriter: replaced(`"status":"active"`, `"status":"released"`)},
	{Name: "leases without a name", Says: "the name of what is leased is lost", Shows: []string{"resources.lease"}, newRewriter: withoutArgument("registry.lease", "display_name")},
	{Name: "touch what is over", Says: "a lease that was released can be touched", Shows: []string{"resources.lease-touch", "resources.reap-fails"},
		newRewriter: succeeds(arcp.CodeFailedPrecondition)},
	{Name: "release nothing", Says: "a lease that was released is active", Shows: []string{"resources.lease-release", "resources.reap"},
		newRewriter: replaced(`"state":"released"`, `"state":"active"`)},
	{Name: "the same page of leases", Says: "a cursor of registry.leases is ignored", Shows: []string{"resources.lease-list"}, newRewriter: withoutArgument("registry.leases", "cursor")},
	{Name: "clean up without fail", Says: "a clean-up that failed was a success", Shows: []string{"resources.reap-fails"},
		newRewriter: replaced(`"state":"cleanup_failed"`, `"state":"released"`)},
	{Name: "do what is dry", Says: "a dry run is none", Shows: []string{"resources.reap-dry-run"}, newRewriter: withoutArgument("registry.reap", "dry_run")},
	{Name: "reap what is named", Says: "what an approval names counts for nothing", Shows: []string{"resources.reap-named"}, newRewriter: withoutArgument("approval.request", "details")},
	{Name: "lease the machine", Says: "a client takes a lease on any process", Shows: []string{"resources.local"}, newRewriter: succeeds(arcp.CodePermissionDenied)},
	{Name: "share a thing", Says: "two principals lease the same thing", Shows: []string{"resources.lease-foreign"}, newRewriter: succeeds(arcp.CodeAlreadyExists)},
}

// registers selects the calls of registry.register.
func registers(f frame) bool {
	p, err := arcp.DecodePayload[arcp.ToolInvokePayload](&f.Envelope)
	return err == nil && f.Type == arcp.ToolInvoke && p.Tool == "registry.register"
}
