package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

const (
	adminWait     = 5 * time.Second // for an answer of the admin listener
	maxAdminReply = 8 << 20         // bytes of it
	doctorPage    = 1000            // rows of a list that are looked at: as many as a page has at most
)

// checkStatus is how a check came out.
type checkStatus string

const (
	fine    checkStatus = "ok"
	wrong   checkStatus = "problem"
	unseen  checkStatus = "not seen" // not checked: the finding names the requirement
	noAdmin             = "needs the role admin"
)

// finding is the result of a check. Do is the remedy.
type finding struct {
	Check   string      `json:"check"`
	Status  checkStatus `json:"verdict"`
	Message string      `json:"message"`
	Do      string      `json:"do,omitzero"`
}

// text is the finding as the last cell of its line.
func (f *finding) text() any {
	if f.Do == "" {
		return f.Message
	}
	return f.Message + "; " + f.Do
}

// diagnosis is all that was found. Healthy says that there is no problem among it.
type diagnosis struct {
	Healthy  bool      `json:"healthy"`
	Findings []finding `json:"findings"`
}

func (d *diagnosis) add(check string, v checkStatus, do, format string, args ...any) {
	d.Findings = append(d.Findings, finding{check, v, fmt.Sprintf(format, args...), do})
}

func newDoctor(a *app) *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a runtime, and say what needs somebody's hand",
		Long: "Checks that a runtime answers and takes jobs, and looks for what it cannot mend by\n" +
			"itself: credentials that are not revoked, leased resources whose clean-up fails, MCP\n" +
			"servers that do not answer. Each finding is a line that says what to do. What cannot\n" +
			"be seen, for want of the role admin or of the admin listener, is said and is no\n" +
			"problem. The exit code is 0 if there is none, otherwise 1.",
		Args: noArgs,
	}
	t := addTarget(cmd)
	cmd.Flags().StringVar(&admin, "admin", "", "the admin listener of the server; default "+defaultAdmin+" for the default --url")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := t.resolve(a); err != nil {
			return err
		}
		page, err := adminPages(admin)
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		var d diagnosis
		d.session(ctx, a, t)
		d.admin(ctx, t, page)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return a.printDiagnosis(&d)
	})
	return cmd
}

func (a *app) printDiagnosis(d *diagnosis) error {
	d.Healthy = !slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Status == wrong })
	var err error
	if a.json {
		err = a.printJSON(d)
	} else {
		err = table(a.stdout, []column[finding]{
			{"CHECK", func(f *finding) any { return f.Check }},
			{"VERDICT", func(f *finding) any { return f.Status }},
			{"FINDING", (*finding).text},
		}, d.Findings)
	}
	if err == nil && !d.Healthy {
		return &exitError{code: exitFailed}
	}
	return err
}

// caller is the caller's part of tools.policy.
type caller struct {
	Principal string   `json:"principal"`
	Roles     []string `json:"roles"`
}

// session runs the checks that need a session.
func (d *diagnosis) session(ctx context.Context, a *app, t *target) {
	c, err := t.dial(ctx, a)
	if err != nil {
		d.add("runtime", wrong, "", "%s", readable(err))
		return
	}
	defer hangUp(c)
	rt := c.Session().Runtime
	d.add("runtime", fine, "", "%s %s answers at %s; this is arcp %s", rt.Kind, rt.Version, t.url, thisBuild().Version)
	caller, err := ask[caller](ctx, c, "tools.policy", map[string]int{"limit": 1})
	switch {
	case isCode(err, arcp.CodePermissionDenied):
		d.add("jobs", unseen, "", "your principal may not submit any: %s", readable(err))
		return
	case err != nil:
		d.add("jobs", wrong, "the server's log and /readyz?verbose of its admin listener say why", "the runtime takes none: %s", readable(err))
		return
	}
	d.add("jobs", fine, "", "the runtime takes them, from %s with the roles %s", caller.Principal, strings.Join(caller.Roles, ", "))
	isAdmin := slices.Contains(caller.Roles, "admin")
	d.credentials(ctx, c, isAdmin)
	d.resources(ctx, c, isAdmin)
}

func isCode(err error, code arcp.Code) bool {
	e, ok := errors.AsType[*client.RemoteError](err)
	return ok && e.Code == code
}

// credentials finds those that their provisioner has been asked to revoke, and has
// not.
func (d *diagnosis) credentials(ctx context.Context, c *client.Client, isAdmin bool) {
	const check = "credentials"
	if !isAdmin {
		d.add(check, unseen, "", "whether all that are over are revoked: that %s", noAdmin)
		return
	}
	p, err := ask[arcp.Page[arcp.CredentialView]](ctx, c, "jobs.credentials", map[string]int{"limit": doctorPage})
	if isCode(err, arcp.CodeFailedPrecondition) {
		d.add(check, fine, "", "nothing issues any")
		return
	}
	if err != nil {
		d.add(check, wrong, "", "they cannot be listed: %s", readable(err))
		return
	}
	found := 0
	for _, e := range p.Items {
		if e.Failed == 0 { // in use, or about to be revoked
			continue
		}
		found++
		d.add(check, wrong, fmt.Sprintf(`revoke them there, and then arcp invoke jobs.forget_credentials '{"job_id":%q,"provisioner":%q}'`, e.JobID, e.Provisioner),
			"%s does not revoke %s of job %s of %s, attempt %d: %s", e.Provisioner, names(e.CredentialIDs), e.JobID, e.Principal, e.Failed, e.Error)
	}
	d.conclude(check, found, len(p.Items), "all that are over are revoked")
}

// names are the ids of credentials as far as they are known.
func names(ids []string) string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return "what it has issued, if it has,"
	}
	return strings.Join(ids, ", ")
}

// conclude says that nothing was found, or that not all rows were looked at.
func (d *diagnosis) conclude(check string, found, rows int, good string) {
	switch {
	case rows >= doctorPage:
		d.add(check, unseen, "", "only the first %d were looked at", doctorPage)
	case found == 0:
		d.add(check, fine, "", "%s", good)
	}
}

// resources finds leases whose clean-up has failed.
func (d *diagnosis) resources(ctx context.Context, c *client.Client, isAdmin bool) {
	const check = "resources"
	p, err := ask[arcp.Page[arcp.ResourceLeaseView]](ctx, c, "registry.leases", map[string]any{"limit": doctorPage, "state": arcp.LeaseCleanupFailed})
	if err != nil {
		d.add(check, wrong, "", "they cannot be listed: %s", readable(err))
		return
	}
	for i := range p.Items {
		l := &p.Items[i]
		d.add(check, wrong, fmt.Sprintf(`mend what it says, or do the clean-up by hand and arcp invoke registry.release '{"lease_id":%q}'`, l.LeaseID),
			"%s %s of %s is not cleaned up, %s", l.Type, l.ExternalID, l.Principal, cleanupNote(l))
	}
	d.conclude(check, len(p.Items), len(p.Items), "no clean-up has failed")
	if !isAdmin {
		d.add(check, unseen, "", "those of other principals: that %s", noAdmin)
	}
}

// pages are the pages of an admin listener.
type pages struct {
	base     *url.URL
	explicit bool // set by a flag; otherwise the default address is tried
}

func adminPages(admin string) (*pages, error) {
	p := &pages{explicit: admin != ""}
	if admin == "" {
		admin = defaultAdmin
	}
	if !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	var err error
	if p.base, err = url.Parse(admin); err != nil || p.base.Host == "" {
		return nil, usagef("--admin %s: give the URL of the admin listener, for example %s", admin, defaultAdmin)
	}
	return p, nil
}

// get reads a page.
func (p *pages) get(ctx context.Context, path, query string) (status int, text string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, adminWait, fmt.Errorf("no answer within %s", adminWait))
	defer cancel()
	u := p.base.JoinPath(path)
	u.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", netCause(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminReply))
	return resp.StatusCode, string(body), err
}

// admin runs the checks that need the admin listener.
func (d *diagnosis) admin(ctx context.Context, t *target, p *pages) {
	const check = "admin"
	if !p.explicit && t.url != defaultURL {
		d.add(check, unseen, "", "readiness and MCP servers: --admin says where the admin listener is")
		return
	}
	status, text, err := p.get(ctx, "readyz", "verbose")
	switch {
	case err != nil && !p.explicit:
		d.add(check, unseen, "", "readiness and MCP servers: no admin listener answers at %s (%v); --admin says where it is", p.base, err)
		return
	case err != nil:
		d.add(check, wrong, "give the URL of the listening line with --admin", "no admin listener answers at %s: %v", p.base, err)
		return
	case status == http.StatusOK:
		d.add(check, fine, "", "%s says that the server is ready", p.base)
	case status == http.StatusServiceUnavailable:
		d.add(check, wrong, "it starts, stops or cannot write; the server's log says more", "the server is not ready: %s", unready(text))
	default:
		d.add(check, wrong, "give the URL of the listening line with --admin", "what answers at %s is no admin listener: status %d", p.base, status)
		return
	}
	d.mcpServers(ctx, p)
}

// unready are the parts of a report of /readyz that are not.
func unready(report string) string {
	var parts []string
	for line := range strings.Lines(report) {
		if part, ok := strings.CutPrefix(strings.TrimSpace(line), "[-] "); ok {
			parts = append(parts, part)
		}
	}
	if len(parts) == 0 {
		return oneLine(report)
	}
	return strings.Join(parts, ", ")
}

// mcpServers finds servers whose tools are not to be had, which only their count
// in the metrics tells.
func (d *diagnosis) mcpServers(ctx context.Context, p *pages) {
	const (
		check = "mcp"
		look  = "the server's log names it by its source"
	)
	n, err := p.countMCP(ctx)
	if err != nil {
		d.add(check, wrong, "", "the metrics of %s cannot be read: %v", p.base, err)
		return
	}
	if n["waiting"] > 0 {
		d.add(check, wrong, look+": start it, or correct its entry of tools", "MCP servers that cannot be reached, and are tried again: %d", n["waiting"])
	}
	if n["starting"] > 0 {
		d.add(check, wrong, look+"; ask again in a moment", "MCP servers that have not answered yet: %d", n["starting"])
	}
	if n["waiting"]+n["starting"] == 0 {
		d.add(check, fine, "", "MCP servers that are ready: %d of %[1]d", n["ready"])
	}
}

// countMCP counts the MCP servers by their state.
func (p *pages) countMCP(ctx context.Context) (map[string]int, error) {
	status, text, err := p.get(ctx, "metrics", "")
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("status %d", status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	servers := families["arcp_mcp_servers"]
	if servers == nil {
		return nil, errors.New("there is no arcp_mcp_servers among them")
	}
	n := make(map[string]int)
	for _, m := range servers.GetMetric() {
		for _, l := range m.GetLabel() {
			n[l.GetValue()] += int(m.GetGauge().GetValue())
		}
	}
	return n, nil
}
