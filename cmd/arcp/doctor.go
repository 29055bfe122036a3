package main

import (
	"cmp"
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
	"github.com/arcpd/arcpd/auth"
)

const (
	adminWait     = 5 * time.Second // limit for an answer of the admin listener
	maxAdminReply = 8 << 20         // bytes of an answer of the admin listener
	doctorPage    = 1000            // rows of a list that are checked: the largest page
)

// checkStatus is the result of a check.
type checkStatus string

const (
	statusOK        checkStatus = "ok"
	statusProblem   checkStatus = "problem"
	statusWarning   checkStatus = "warning"  // not a problem for the exit code
	statusUnchecked checkStatus = "not seen" // the message names the requirement
	needsAdmin                  = "needs the role admin"
)

// finding is the result of a check with the remedy, if any.
type finding struct {
	Check   string      `json:"check"`
	Status  checkStatus `json:"verdict"`
	Message string      `json:"message"`
	Remedy  string      `json:"do,omitzero"`
}

// text returns the message and the remedy.
func (f *finding) text() any {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + "; " + f.Remedy
}

// diagnosis is the list of findings. Healthy reports that no finding is a problem.
type diagnosis struct {
	Healthy  bool      `json:"healthy"`
	Findings []finding `json:"findings"`

	waitingSeen int // jobs that wait for a worker, in the findings of workers
}

func (d *diagnosis) add(check string, status checkStatus, remedy, format string, args ...any) {
	d.Findings = append(d.Findings, finding{check, status, fmt.Sprintf(format, args...), remedy})
}

func newDoctor(a *app) *cobra.Command {
	var admin string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a runtime for problems that need an operator",
		Long: "Checks that a runtime answers, accepts jobs and stores artifacts, and finds problems that\n" +
			"it cannot solve: credentials that are not revoked, leased resources whose clean-up fails,\n" +
			"MCP servers that do not answer, jobs that wait for a worker that is not connected, a full\n" +
			"disk, a certificate that ends, a reload that failed and clocks that differ.\n" +
			"Each finding is a line with the remedy. What may become a problem is a warning. A check that\n" +
			"needs the role admin or the admin listener is reported as not seen. The exit code is 1\n" +
			"with a problem, otherwise 0.",
		Args: noArgs,
	}
	t := addTargetWith(cmd, addDocumentOutput(cmd))
	cmd.Flags().StringVar(&admin, "admin", "", "URL of the server's admin listener; default: "+defaultAdmin+" for the default --url")
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		if err := t.resolve(a); err != nil {
			return err
		}
		page, err := adminPages(admin, t.httpClient())
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
	d.Healthy = !slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Status == statusProblem })
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

// caller has the members of tools.policy about the caller.
type caller struct {
	Principal string   `json:"principal"`
	Roles     []string `json:"roles"`

	// Refusal is why every job of the caller would be refused now; nil: one would be accepted, or the runtime is
	// older than this member.
	Refusal *arcp.Error `json:"refusal"`
}

// session runs the checks that need a session.
func (d *diagnosis) session(ctx context.Context, a *app, tg *target) {
	c, err := tg.dial(ctx, a)
	if err != nil {
		d.add("runtime", statusProblem, "", "%s", readable(err))
		return
	}
	defer closeSession(c)
	rt := c.Session().Runtime
	d.add("runtime", statusOK, "", "%s %s answers at %s; this is arcp %s", rt.Kind, rt.Version, tg.url, thisBuild().Version)
	if tg.token != "" && isShortToken(auth.Secret(tg.token)) {
		d.add("token", statusWarning, "`arcp token new` makes one", "your token has fewer than %d characters and can be guessed", minToken)
	}
	self, err := ask[caller](ctx, c, "tools.policy", map[string]int{"limit": 1})
	switch {
	case isCode(err, arcp.CodePermissionDenied):
		d.add("jobs", statusUnchecked, "", "your principal may not submit jobs: %s", readable(err))
		return
	case err != nil:
		d.add("jobs", statusProblem, "see the server's log and /readyz?verbose of its admin listener",
			"the runtime refuses jobs: %s", readable(err))
		return
	case self.Refusal != nil:
		d.add("jobs", statusProblem, "end jobs, or raise the limit that the message names; for lack of space, make room",
			"the runtime refuses all jobs of %s: %s", self.Principal, self.Refusal.Message)
	default:
		d.add("jobs", statusOK, "", "the runtime accepts jobs of %s with the roles %s", self.Principal, strings.Join(self.Roles, ", "))
	}
	isAdmin := slices.Contains(self.Roles, "admin")
	d.artifacts(ctx, c)
	d.credentials(ctx, c, isAdmin)
	d.resources(ctx, c, isAdmin)
	d.workers(ctx, c, self.Principal)
}

// artifacts stores an artifact, reads it and releases it.
func (d *diagnosis) artifacts(ctx context.Context, c *client.Client) {
	const check = "artifacts"
	failed, err := tryArtifact(ctx, c)
	switch {
	case err == nil:
		d.add(check, statusOK, "", "an artifact was stored, read and released")
	case isCode(err, arcp.CodePermissionDenied), isCode(err, arcp.CodeNotFound): // a policy hides the tool
		d.add(check, statusUnchecked, "", "your principal may not store, read and release artifacts: %s", readable(err))
	default:
		d.add(check, statusProblem, "see the server's log", "%s: %s", failed, readable(err))
	}
}

// tryArtifact stores an artifact, reads it and releases it. It releases also what it cannot read.
// With an error it says what has failed.
func tryArtifact(ctx context.Context, c *client.Client) (failed string, err error) {
	const content = "arcp doctor"
	o, err := ask[arcp.ArtifactObject](ctx, c, "artifact.put",
		map[string]any{"media_type": "text/plain", "retain_seconds": 60, "data": []byte(content)})
	if err != nil {
		return "an artifact cannot be stored", err
	}
	got, err := ask[arcp.ArtifactChunk](ctx, c, "artifact.get", idOnly{o.ArtifactID})
	if err == nil && string(got.Data) != content {
		err = errors.New("it has other content")
	}
	_, releaseErr := ask[arcp.ArtifactReleased](ctx, c, "artifact.release", idOnly{o.ArtifactID})
	return "an artifact that was stored cannot be read and released", cmp.Or(err, releaseErr)
}

func isCode(err error, code arcp.Code) bool {
	e, ok := errors.AsType[*client.RemoteError](err)
	return ok && e.Code == code
}

// credentials finds credentials whose revocation has failed.
func (d *diagnosis) credentials(ctx context.Context, c *client.Client, isAdmin bool) {
	const check = "credentials"
	if !isAdmin {
		d.add(check, statusUnchecked, "", "the check for credentials that are not revoked %s", needsAdmin)
		return
	}
	p, err := ask[arcp.Page[arcp.CredentialView]](ctx, c, "jobs.credentials", map[string]int{"limit": doctorPage})
	if isCode(err, arcp.CodeFailedPrecondition) {
		d.add(check, statusOK, "", "no provisioner is configured")
		return
	}
	if err != nil {
		d.add(check, statusProblem, "", "the list is not available: %s", readable(err))
		return
	}
	found := 0
	for _, e := range p.Items {
		if e.Failed == 0 { // in use, or waiting for the first revocation
			continue
		}
		found++
		d.add(check, statusProblem,
			fmt.Sprintf(`revoke them at the provisioner, and then run arcp invoke jobs.forget_credentials '{"job_id":%q,"provisioner":%q}'`, e.JobID, e.Provisioner),
			"%s failed to revoke %s of job %s of %s, attempt %d: %s", e.Provisioner, names(e.CredentialIDs), e.JobID, e.Principal, e.Failed, e.Error)
	}
	d.conclude(check, found, len(p.Items), "all expired credentials are revoked")
}

// names returns the known ids of credentials.
func names(ids []string) string {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return id == "" })
	if len(ids) == 0 {
		return "the issued credentials, if any,"
	}
	return strings.Join(ids, ", ")
}

// conclude reports that the check found nothing, or that it did not check all rows.
func (d *diagnosis) conclude(check string, found, rows int, message string) {
	switch {
	case rows >= doctorPage:
		d.add(check, statusUnchecked, "", "only the first %d rows were checked", doctorPage)
	case found == 0:
		d.add(check, statusOK, "", "%s", message)
	}
}

// resources finds leases whose clean-up has failed.
func (d *diagnosis) resources(ctx context.Context, c *client.Client, isAdmin bool) {
	const check = "resources"
	p, err := ask[arcp.Page[arcp.ResourceLeaseView]](ctx, c, "registry.leases",
		map[string]any{"limit": doctorPage, "state": arcp.LeaseCleanupFailed})
	if err != nil {
		d.add(check, statusProblem, "", "the list is not available: %s", readable(err))
		return
	}
	for i := range p.Items {
		l := &p.Items[i]
		d.add(check, statusProblem,
			fmt.Sprintf(`solve the reported error, or clean up manually and run arcp invoke registry.release '{"lease_id":%q}'`, l.LeaseID),
			"%s %s of %s is not cleaned up, %s", l.Type, l.ExternalID, l.Principal, cleanupNote(l))
	}
	d.conclude(check, len(p.Items), len(p.Items), "no clean-up has failed")
	if !isAdmin {
		d.add(check, statusUnchecked, "", "the check of other principals' leases %s", needsAdmin)
	}
}

// pages reads the pages of an admin listener.
type pages struct {
	base     *url.URL
	client   *http.Client
	explicit bool // set by a flag; otherwise the default address is tried
}

func adminPages(admin string, client *http.Client) (*pages, error) {
	p := &pages{client: client, explicit: admin != ""}
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

// answer is a page.
type answer struct {
	status int
	text   string
	date   string    // header Date
	at     time.Time // in the middle between the request and the header
}

// get reads a page.
func (p *pages) get(ctx context.Context, path, query string) (got answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, adminWait, fmt.Errorf("no answer within %s", adminWait))
	defer cancel()
	u := p.base.JoinPath(path)
	u.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return got, err
	}
	began := time.Now()
	resp, err := p.client.Do(req)
	if err != nil {
		if problem := tlsProblem(p.base.String(), err); problem != nil {
			return got, problem
		}
		return got, netCause(err)
	}
	defer resp.Body.Close()
	got.at = began.Add(time.Since(began) / 2)
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminReply))
	got.status, got.text, got.date = resp.StatusCode, string(body), resp.Header.Get("Date")
	return got, err
}

// admin runs the checks that need the admin listener.
func (d *diagnosis) admin(ctx context.Context, tg *target, p *pages) {
	const check = "admin"
	if !p.explicit && tg.url != defaultURL {
		d.add(check, statusUnchecked, "", "readiness, store and MCP servers: give the URL of the admin listener with --admin")
		return
	}
	ready, err := p.get(ctx, "readyz", "verbose")
	switch {
	case err != nil && !p.explicit:
		d.add(check, statusUnchecked, "",
			"readiness, store and MCP servers: no admin listener answers at %s (%v); give its URL with --admin", p.base, err)
		return
	case err != nil:
		d.add(check, statusProblem, "give the admin URL of the listening line with --admin", "no admin listener answers at %s: %v", p.base, err)
		return
	case ready.status == http.StatusOK:
		d.add(check, statusOK, "", "%s reports that the server is ready", p.base)
	case ready.status == http.StatusServiceUnavailable:
		d.add(check, statusProblem, "the server starts, stops or cannot write; see its log", "the server is not ready: %s", notReadyParts(ready.text))
	default:
		d.add(check, statusProblem, "give the admin URL of the listening line with --admin",
			"the server at %s is not an admin listener: status %d", p.base, ready.status)
		return
	}
	g, err := p.gauges(ctx)
	switch {
	case err != nil && ready.status == http.StatusServiceUnavailable:
		return // during a start there are only some metrics
	case err != nil:
		d.add(check, statusProblem, "", "read the metrics of %s: %v", p.base, err)
		return
	}
	d.clock(ready.date, ready.at)
	d.store(g["arcp_store_bytes"][""], g["arcp_store_max_bytes"][""])
	d.disk(g)
	d.certificate(g, time.Now())
	d.reload(g)
	d.mcpServers(g["arcp_mcp_servers"], g["arcp_mcp_server_ready"])
	d.waiting(g)
}

// notReadyParts returns the parts that a report of /readyz lists as not ready.
func notReadyParts(report string) string {
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

// store compares the bytes of the store with their bound; 0: no bound.
func (d *diagnosis) store(bytes, limit float64) {
	const check = "store"
	switch {
	case limit == 0:
		d.add(check, statusOK, "", "%s without a bound", binarySize(bytes))
	case bytes > 0.9*limit:
		d.add(check, statusProblem, "raise --max-data, or lower --retention; at the bound jobs are refused", "%s", shareOf(bytes, limit))
	default:
		d.add(check, statusOK, "", "%s", shareOf(bytes, limit))
	}
}

func shareOf(bytes, limit float64) string {
	return fmt.Sprintf("%s of %s (%.1f %%)", binarySize(bytes), binarySize(limit), 100*bytes/limit)
}

// binarySize formats a number of bytes with the largest unit that it reaches.
func binarySize(n float64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	for n >= 1024 && len(units) > 1 {
		n, units = n/1024, units[1:]
	}
	return fmt.Sprintf("%.4g %s", n, units[0])
}

// mcpServers finds MCP servers whose tools are not available. n is their number by state. ready is 1 for the name of
// a server that is ready, and otherwise 0; an older server does not tell it.
func (d *diagnosis) mcpServers(n, ready map[string]float64) {
	const check = "mcp"
	var down []string
	for name, up := range ready {
		if up == 0 {
			down = append(down, name)
		}
	}
	slices.Sort(down)
	if n["waiting"]+n["starting"] == 0 {
		d.add(check, statusOK, "", "MCP servers that are ready: %.0f of %.0[1]f", n["ready"])
		return
	}
	which, lines := fmt.Sprintf("%.0f", n["waiting"]+n["starting"]), "about the session with an MCP server"
	if len(down) > 0 {
		which, lines = strings.Join(down, ", "), "with mcp_server="+down[0]
	}
	d.add(check, statusProblem,
		"the lines "+lines+" in the server's log have the last error: start the MCP server, or correct its entry in tools",
		"MCP servers that are not ready: %s; %.0f cannot be reached and are retried, %.0f have not answered yet", which, n["waiting"], n["starting"])
}

// gauges has the gauges and counters of a server by name and by the value of their label, "" without a label.
type gauges map[string]map[string]float64

// gauges reads the gauges and counters from the metrics.
func (p *pages) gauges(ctx context.Context) (gauges, error) {
	page, err := p.get(ctx, "metrics", "")
	if err != nil {
		return nil, err
	}
	if page.status != http.StatusOK {
		return nil, fmt.Errorf("status %d", page.status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page.text))
	if err != nil {
		return nil, err
	}
	all := make(gauges)
	for name, family := range families {
		values := make(map[string]float64)
		for _, m := range family.GetMetric() {
			label := ""
			for _, l := range m.GetLabel() {
				label = l.GetValue()
			}
			values[label] += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
		all[name] = values
	}
	for _, name := range []string{"arcp_jobs_waiting", "arcp_mcp_servers", "arcp_store_bytes", "arcp_store_max_bytes"} {
		if all[name] == nil {
			return nil, fmt.Errorf("the metric %s is missing", name)
		}
	}
	return all, nil
}
