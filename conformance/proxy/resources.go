package proxy

import "github.com/arcpd/arcpd/arcp"

// resourceFaults are defects of resources and leases on resources.
var resourceFaults = []Fault{
	{Defect: "the status in registry.register is ignored", Checks: []string{"resources.register"}, House: true, newRewriter: withoutArgument("registry.register", "status")},
	{Defect: "the cursor of registry.list is ignored", Checks: []string{"resources.list"}, House: true, newRewriter: withoutArgument("registry.list", "cursor")},
	{Defect: "two registrations of one client are performed in reverse order", Checks: []string{"resources.order"}, House: true,
		newRewriter: func() rewriter {
			exchange := swap(isRegistration, isRegistration, false)()
			return rewriter{out: exchange.in}
		}},
	{Defect: "the kind in registry.list is ignored", Checks: []string{"resources.filter"}, House: true, newRewriter: withoutArgument("registry.list", "kind")},
	{Defect: "the session_id in registry.list is ignored", Checks: []string{"resources.of-a-session"}, House: true, newRewriter: withoutArgument("registry.list", "session_id")},
	{Defect: "resources and leases of another principal are visible", Checks: []string{"resources.foreign", "resources.unknown", "resources.lease-foreign"}, House: true,
		newRewriter: completeFailed(arcp.CodeNotFound)},
	{Defect: "invalid resources and leases are accepted", Checks: []string{"resources.wrong", "resources.lease-wrong"}, House: true,
		newRewriter: completeFailed(arcp.CodeInvalidArgument)},
	{Defect: "registry.deregister removes nothing", Checks: []string{"resources.deregister"}, House: true, newRewriter: replaceReceived(`"removed":true`, `"removed":false`)},
	{Defect: "an active resource is reported as released", Checks: []string{"resources.revive", "resources.lease", "resources.restart"}, House: true,
		newRewriter: replaceReceived(`"status":"active"`, `"status":"released"`)},
	{Defect: "display_name in registry.lease is ignored", Checks: []string{"resources.lease"}, House: true, newRewriter: withoutArgument("registry.lease", "display_name")},
	{Defect: "a released lease can be renewed", Checks: []string{"resources.lease-touch", "resources.reap-fails"}, House: true,
		newRewriter: completeFailed(arcp.CodeFailedPrecondition)},
	{Defect: "a released lease is reported as active", Checks: []string{"resources.lease-release", "resources.reap"}, House: true,
		newRewriter: replaceReceived(`"state":"released"`, `"state":"active"`)},
	{Defect: "the cursor of registry.leases is ignored", Checks: []string{"resources.lease-list"}, House: true, newRewriter: withoutArgument("registry.leases", "cursor")},
	{Defect: "a failed clean-up is reported as released", Checks: []string{"resources.reap-fails"}, House: true, Silent: true,
		newRewriter: replaceReceived(`"state":"cleanup_failed"`, `"state":"released"`)},
	{Defect: "dry_run in registry.reap is ignored", Checks: []string{"resources.reap-dry-run"}, House: true, newRewriter: withoutArgument("registry.reap", "dry_run")},
	{Defect: "the details of an approval do not restrict registry.reap", Checks: []string{"resources.reap-named"}, House: true, newRewriter: withoutArgument("approval.request", "details")},
	{Defect: "a client can lease any process of the machine", Checks: []string{"resources.local"}, House: true, newRewriter: completeFailed(arcp.CodePermissionDenied)},
	{Defect: "two principals can lease the same resource", Checks: []string{"resources.lease-foreign"}, House: true, newRewriter: completeFailed(arcp.CodeAlreadyExists)},
}

// isRegistration reports whether f calls registry.register.
func isRegistration(f frame) bool {
	p, err := arcp.DecodePayload[arcp.ToolInvokePayload](&f.Envelope)
	return err == nil && f.Type == arcp.ToolInvoke && p.Tool == "registry.register"
}
