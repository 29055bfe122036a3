package proxy

import "github.com/arcpd/arcpd/arcp"

// resourceFaults are defects of resources and leases on resources.
var resourceFaults = []Fault{
	{Defect: "the status in registry.register is ignored", Checks: []string{"resources.register"}, newRewriter: withoutArgument("registry.register", "status")},
	{Defect: "the cursor of registry.list is ignored", Checks: []string{"resources.list"}, newRewriter: withoutArgument("registry.list", "cursor")},
	{Defect: "two registrations of one client are performed in reverse order", Checks: []string{"resources.order"},
		newRewriter: func() rewriter {
			exchange := swap(isRegistration, isRegistration, false)()
			return rewriter{out: exchange.in}
		}},
	{Defect: "the kind in registry.list is ignored", Checks: []string{"resources.filter"}, newRewriter: withoutArgument("registry.list", "kind")},
	{Defect: "the session_id in registry.list is ignored", Checks: []string{"resources.of-a-session"}, newRewriter: withoutArgument("registry.list", "session_id")},
	{Defect: "resources and leases of another principal are visible", Checks: []string{"resources.foreign", "resources.unknown", "resources.lease-foreign"},
		newRewriter: completeFailed(arcp.CodeNotFound)},
	{Defect: "invalid resources and leases are accepted", Checks: []string{"resources.wrong", "resources.lease-wrong"},
		newRewriter: completeFailed(arcp.CodeInvalidArgument)},
	{Defect: "registry.deregister removes nothing", Checks: []string{"resources.deregister"}, newRewriter: replaceReceived(`"removed":true`, `"removed":false`)},
	{Defect: "an active resource is reported as released", Checks: []string{"resources.revive", "resources.lease", "resources.restart"},
		newRewriter: replaceReceived(`"status":"active"`, `"status":"released"`)},
	{Defect: "display_name in registry.lease is ignored", Checks: []string{"resources.lease"}, newRewriter: withoutArgument("registry.lease", "display_name")},
	{Defect: "a released lease can be renewed", Checks: []string{"resources.lease-touch", "resources.reap-fails"},
		newRewriter: completeFailed(arcp.CodeFailedPrecondition)},
	{Defect: "a released lease is reported as active", Checks: []string{"resources.lease-release", "resources.reap"},
		newRewriter: replaceReceived(`"state":"released"`, `"state":"active"`)},
	{Defect: "the cursor of registry.leases is ignored", Checks: []string{"resources.lease-list"}, newRewriter: withoutArgument("registry.leases", "cursor")},
	{Defect: "a failed clean-up is reported as released", Checks: []string{"resources.reap-fails"},
		newRewriter: replaceReceived(`"state":"cleanup_failed"`, `"state":"released"`)},
	{Defect: "dry_run in registry.reap is ignored", Checks: []string{"resources.reap-dry-run"}, newRewriter: withoutArgument("registry.reap", "dry_run")},
	{Defect: "the details of an approval do not restrict registry.reap", Checks: []string{"resources.reap-named"}, newRewriter: withoutArgument("approval.request", "details")},
	{Defect: "a client can lease any process of the machine", Checks: []string{"resources.local"}, newRewriter: completeFailed(arcp.CodePermissionDenied)},
	{Defect: "two principals can lease the same resource", Checks: []string{"resources.lease-foreign"}, newRewriter: completeFailed(arcp.CodeAlreadyExists)},
}

// isRegistration reports whether f calls registry.register.
func isRegistration(f frame) bool {
	p, err := arcp.DecodePayload[arcp.ToolInvokePayload](&f.Envelope)
	return err == nil && f.Type == arcp.ToolInvoke && p.Tool == "registry.register"
}
