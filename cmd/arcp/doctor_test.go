package main

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// doctorServer has an admin, and a client whose clean-up fails.
func doctorServer(t *testing.T) *process {
	t.Helper()
	auth := write(t, filepath.Join(t.TempDir(), "auth.yaml"), `principals:
  - {name: alice, tokens: ["`+hashOf("secret")+`"]}
  - {name: root, tokens: ["`+hashOf("root")+`"], roles: [client, admin]}
  - {name: wall, tokens: ["`+hashOf("wall")+`"], roles: [observer]}
`)
	return serve(t, "--data", ":memory:", "--auth-file", auth)
}

func TestDoctorReportsEachCheck(t *testing.T) {
	t.Parallel()
	p := doctorServer(t)
	as := func(token string, more ...string) outcome {
		t.Helper()
		return cli(t, append([]string{"doctor", "--url", p.url, "--token", token}, more...)...)
	}
	wantOutcome(t, "a short token", as("root"), exitOK, "token        warning   your token has fewer than 16 characters and can be guessed; `arcp token new` makes one", "")
	o := as("root", "--admin", p.admin)
	wantOutcome(t, "no problem", o, exitOK, "ok", "")
	for _, want := range []string{"accepts jobs of root with the roles client, admin",
		"artifacts    ok       an artifact was stored, read and released", "credentials  ok",
		"resources    ok", "reports that the server is ready", "the clocks of the server and of this machine agree", "store        ok", "mcp          ok", "MCP servers that are ready: 0 of 0"} {
		if !strings.Contains(o.stdout, want) {
			t.Errorf("the findings have no %q:\n%s", want, o.stdout)
		}
	}
	if strings.Contains(o.stdout, string(statusUnchecked)) {
		t.Errorf("an admin has not seen everything:\n%s", o.stdout)
	}
	o = as("secret")
	wantOutcome(t, "what a client does not see", o, exitOK,
		"not seen  the check for credentials that are not revoked needs the role admin", "")
	wantOutcome(t, "and of resources", o, exitOK, "not seen  the check of other principals' leases needs the role admin", "")
	wantOutcome(t, "without the admin listener", o, exitOK, "not seen  readiness, store and MCP servers: give the URL", "")
	wantOutcome(t, "an observer", as("wall"), exitOK, "not seen  your principal may not submit jobs", "")

	lease := p.leases(`{"provider":"cloud","resource_type":"vm","external_id":"vm-1","lease_duration_seconds":0}`)
	p.eventually("its clean-up fails", lease, "resources", "ls", "--state", "cleanup_failed")
	for token, exit := range map[string]int{"secret": exitFailed, "root": exitFailed, "wall": exitOK} {
		want := ""
		if exit == exitFailed {
			want = `problem   vm vm-1 of alice is not cleaned up, attempt 1: UNIMPLEMENTED: no clean-up handler`
		}
		wantOutcome(t, "a clean-up that fails", as(token), exit, want, "")
	}
	o = as("secret", "-o", "json")
	wantOutcome(t, "as JSON", o, exitFailed, `{"healthy":false,"findings":[{"check":"runtime","verdict":"ok",`, "")
	wantOutcome(t, "with what to do", o, exitFailed, `arcp invoke registry.release '{\"lease_id\":\"`+lease+`\"}'"}`, "")
	wantOutcome(t, "which is right", p.cli("invoke", "registry.release", `{"lease_id":"`+lease+`"}`), exitOK, "released", "")
	wantOutcome(t, "and mends it", as("secret"), exitOK, "no clean-up has failed", "")
}

// A runtime that cannot be asked is a problem too.
func TestDoctorOfNoRuntime(t *testing.T) {
	t.Parallel()
	p := demoServer(t)
	wantOutcome(t, "a statusProblem token", cli(t, "doctor", "--url", p.url, "--token", "x", "--admin", p.admin), exitFailed,
		"runtime  problem  open session: UNAUTHENTICATED", "")
	wantOutcome(t, "no runtime",
		cli(t, "doctor", "--url", "ws://127.0.0.1:1/arcp", "--token", "x", "--admin", "http://127.0.0.1:1"), exitFailed,
		"admin    problem  no admin listener answers at http://127.0.0.1:1: connect: connection refused; give the admin URL", "")
	wantRefusal(t, cli(t, "doctor", "--admin", "http://"), exitUsage, "give the URL of the admin listener")
}

// The metrics that the doctor reads are those of a server.
func TestDoctorReadsMetrics(t *testing.T) {
	t.Parallel()
	p, err := adminPages(demoServer(t).admin, http.DefaultClient)
	if err != nil {
		t.Fatal(err)
	}
	g, err := p.gauges(t.Context())
	if want := map[string]float64{"starting": 0, "ready": 0, "waiting": 0}; err != nil || !maps.Equal(g["arcp_mcp_servers"], want) {
		t.Errorf("MCP servers are %v, %v, want %v", g["arcp_mcp_servers"], err, want)
	}
	if bytes := g["arcp_store_bytes"][""]; bytes <= 0 {
		t.Errorf("the store has %v bytes", bytes)
	}
}

func TestDoctorOfStore(t *testing.T) {
	for _, c := range []struct {
		bytes, limit float64
		status       checkStatus
		message      string
	}{
		{12 << 20, 6 << 30, statusOK, "12 MiB of 6 GiB (0.2 %)"},
		{900, 1000, statusOK, "900 bytes of 1000 bytes (90.0 %)"},
		{901, 1000, statusProblem, "901 bytes of 1000 bytes (90.1 %)"},
		{1.5 * (1 << 10), 0, statusOK, "1.5 KiB without a bound"},
	} {
		var d diagnosis
		d.store(c.bytes, c.limit)
		if f := d.Findings[0]; f.Status != c.status || f.Message != c.message {
			t.Errorf("%v of %v bytes: %+v, want %s %s", c.bytes, c.limit, f, c.status, c.message)
		}
	}
}

// The checks of the disk, the certificate, the reload and the clock.
func TestDoctorOfServer(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) gauges {
		return gauges{"arcp_certificate_expiry_timestamp_seconds": {"": float64(now.Add(d).Unix())}}
	}
	free := func(n float64) gauges {
		return gauges{"arcp_store_free_bytes": {"": n}, "arcp_store_min_free_bytes": {"": 1 << 30}}
	}
	for name, c := range map[string]struct {
		check func(d *diagnosis)
		want  string // status and start of the message; empty: no finding
	}{
		"no disk":             {func(d *diagnosis) { d.disk(gauges{}) }, ""},
		"enough disk":         {func(d *diagnosis) { d.disk(free(4 << 30)) }, "ok 4 GiB are free; below the 1 GiB of --min-free no jobs are accepted"},
		"little disk":         {func(d *diagnosis) { d.disk(free(3 << 30)) }, "warning 3 GiB are free"},
		"full disk":           {func(d *diagnosis) { d.disk(free(1 << 29)) }, "problem 512 MiB are free"},
		"failed commits":      {func(d *diagnosis) { d.disk(gauges{"arcp_store_commit_errors_total": {"": 2}}) }, "problem commits that failed: 2"},
		"no certificate":      {func(d *diagnosis) { d.certificate(gauges{}, now) }, ""},
		"long certificate":    {func(d *diagnosis) { d.certificate(in(certificateSoon), now) }, "ok the certificate expires at"},
		"short certificate":   {func(d *diagnosis) { d.certificate(in(certificateSoon-time.Second), now) }, "warning the certificate expires at"},
		"expired certificate": {func(d *diagnosis) { d.certificate(in(0), now) }, "problem the certificate expired at"},
		"reloaded":            {func(d *diagnosis) { d.reload(gauges{"arcp_config_last_reload_successful": {"": 1}}) }, ""},
		"not reloaded":        {func(d *diagnosis) { d.reload(gauges{"arcp_config_last_reload_successful": {"": 0}}) }, "problem the last reload of the configuration failed"},
		"same clock":          {func(d *diagnosis) { d.clock(now.Add(-maxClockSkew).Format(http.TimeFormat), now) }, "ok the clocks"},
		"other clock": {func(d *diagnosis) { d.clock(now.Add(-time.Minute).Format(http.TimeFormat), now) },
			"warning the clock of the server differs from this one by -1m0s"},
		"no clock": {func(d *diagnosis) { d.clock("", now) }, "not seen the admin listener sends no date"},
	} {
		var d diagnosis
		c.check(&d)
		got := ""
		if len(d.Findings) > 0 {
			got = string(d.Findings[0].Status) + " " + d.Findings[0].Message
		}
		if !strings.HasPrefix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }

// The time of the clock check is the middle of the request, however slow the answer and the other pages are.
func TestDoctorReadsTheClockInTheMiddleOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := adminPages("", &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			time.Sleep(4 * time.Second)
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok")), Header: http.Header{"Date": {"now"}}}, nil
		})})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		got, err := p.get(t.Context(), "readyz", "")
		if want := (answer{http.StatusOK, "ok", "now", began.Add(2 * time.Second)}); err != nil || got != want {
			t.Errorf("get = %+v, %v, want %+v", got, err, want)
		}
	})
}

// fakeAdmin answers as a server that is not ready does.
func fakeAdmin(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "[-] runtime: draining\nready: false\n")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "# TYPE arcp_mcp_servers gauge\narcp_mcp_servers{state=\"ready\"} 2\narcp_mcp_servers{state=\"starting\"} 1\narcp_mcp_servers{state=\"waiting\"} 3\n"+
			"# TYPE arcp_mcp_server_ready gauge\narcp_mcp_server_ready{mcp_server=\"web\"} 0\narcp_mcp_server_ready{mcp_server=\"files\"} 0\narcp_mcp_server_ready{mcp_server=\"git\"} 1\n"+
			"# TYPE arcp_jobs_waiting gauge\narcp_jobs_waiting{reason=\"worker\"} 4\narcp_jobs_waiting{reason=\"reconnect\"} 6\narcp_jobs_waiting{reason=\"slot\"} 5\n"+
			"# TYPE arcp_jobs_queued gauge\narcp_jobs_queued{tool=\"sleep\"} 2\narcp_jobs_queued{tool=\"py.rev\"} 3\narcp_jobs_queued{tool=\"echo\"} 0\n"+
			"# TYPE arcp_store_bytes gauge\narcp_store_bytes 95\n# TYPE arcp_store_max_bytes gauge\narcp_store_max_bytes 100\n")
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestDoctorOfCredentials(t *testing.T) {
	answers := map[string]any{
		"tools.policy": caller{Principal: "root", Roles: []string{"client", "admin"}, Refusal: arcp.Errorf(arcp.CodeResourceExhausted, "limit of 1 jobs reached (max-jobs)")},
		"jobs.credentials": arcp.Page[arcp.CredentialView]{Items: []arcp.CredentialView{
			{JobID: "job_a", Provisioner: "gateway", Principal: "alice", State: "live", CredentialIDs: []string{"key-1"}},
			{JobID: "job_b", Provisioner: "gateway", Principal: "alice", State: "revoking",
				CredentialIDs: []string{"key-2", ""}, Failed: 3, Error: "status 500"},
			{JobID: "job_c", Provisioner: "gateway", Principal: "bob", State: "revoking", CredentialIDs: []string{""}, Failed: 1, Error: "timeout"},
		}},
		"registry.leases": arcp.Page[arcp.ResourceLeaseView]{Items: []arcp.ResourceLeaseView{}},
		"artifact.put":    arcp.ArtifactObject{ArtifactID: "art_1"},
		"artifact.get":    arcp.ArtifactChunk{Data: []byte("other")},
		"host.agents":     arcp.Page[workerAgent]{Items: []workerAgent{}},
	}
	var released atomic.Int32
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		if env.Type == arcp.SessionListJobs {
			c.reply(env, arcp.SessionJobs, arcp.SessionJobsPayload{Jobs: []arcp.JobEntry{}})
			return
		}
		p, err := arcp.DecodePayload[arcp.ToolInvokePayload](env)
		if err != nil {
			t.Errorf("the client sent %s: %v", env.Type, err)
			return
		}
		if p.Tool == "artifact.release" {
			released.Add(1)
		}
		raw, err := arcp.Marshal(answers[p.Tool])
		if err != nil {
			t.Error(err)
		}
		c.complete(env, string(raw))
	})
	o := r.cli("doctor", "--admin", fakeAdmin(t))
	for _, want := range []string{
		"gateway failed to revoke key-2 of job job_b of alice, attempt 3: status 500; revoke them at the provisioner, and then run arcp invoke jobs.forget_credentials '{\"job_id\":\"job_b\",\"provisioner\":\"gateway\"}'\n",
		"gateway failed to revoke the issued credentials, if any, of job job_c of bob, attempt 1: timeout",
		"artifacts    problem  an artifact that was stored cannot be read and released: it has other content; see the server's log",
		"the server is not ready: runtime: draining; ",
		"store        problem  95 bytes of 100 bytes (95.0 %); raise --max-data",
		"other jobs that wait for a connected worker: 4; queued jobs by tool: py.rev 3, sleep 2; start the workers",
		"running jobs of all principals whose workers have lost their connections: 6; start the workers again",
		"MCP servers that are not ready: files, web; 3 cannot be reached and are retried, 1 have not answered yet; the lines with mcp_server=files in the server's log have the last error: start the MCP server, or correct its entry in tools",
	} {
		wantOutcome(t, "findings", o, exitFailed, want, "")
	}
	if n := released.Load(); n != 1 {
		t.Errorf("the artifact that cannot be read was released %d times", n)
	}
	if strings.Contains(o.stdout, "job_a") {
		t.Errorf("a credential that is in use is a problem:\n%s", o.stdout)
	}
}

// A principal that may not use artifacts has no problem.
func TestDoctorWithoutTheRightToStoreArtifacts(t *testing.T) {
	for _, code := range []arcp.Code{arcp.CodePermissionDenied, arcp.CodeNotFound} {
		r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
			if env.Type == arcp.SessionListJobs {
				c.reply(env, arcp.SessionJobs, arcp.SessionJobsPayload{Jobs: []arcp.JobEntry{}})
				return
			}
			p, err := arcp.DecodePayload[arcp.ToolInvokePayload](env)
			if err != nil {
				t.Errorf("the client sent %s: %v", env.Type, err)
				return
			}
			if p.Tool != "artifact.put" {
				c.complete(env, "{}")
				return
			}
			c.event(env.ID, arcp.JobAccepted, arcp.JobAcceptedPayload{JobID: "job_1"})
			c.event(env.ID, arcp.JobFailed, arcp.Errorf(code, "a policy refuses it"))
		})
		wantOutcome(t, string(code), r.cli("doctor"), exitOK,
			"artifacts    not seen  your principal may not store, read and release artifacts: "+string(code), "")
	}
}

// Jobs that wait for a worker, and a worker without a connection, are problems. Other waits are not.
func TestDoctorOfWorkers(t *testing.T) {
	day := time.Date(2030, 1, 2, 15, 4, 5, 0, time.Local)
	waits := map[arcp.JobID]arcp.JobView{
		"job_1": {Agent: "py.rev@1.0.0", Waiting: &arcp.JobWaiting{Reason: arcp.WaitWorker, Since: day}},
		"job_2": {Agent: "py.rev@1.0.0"},
		"job_3": {Agent: "sleep@1.0.0", Waiting: &arcp.JobWaiting{Reason: arcp.WaitSlot, Since: day}},
		"job_4": {Agent: "echo@1.0.0"},
		"job_5": {Principal: "bob", Agent: "py.up@1.0.0", Waiting: &arcp.JobWaiting{Reason: arcp.WaitWorker, Since: day}},
	}
	answers := map[string]any{
		"tools.policy":    caller{Principal: "alice", Roles: []string{"client"}},
		"registry.leases": arcp.Page[arcp.ResourceLeaseView]{Items: []arcp.ResourceLeaseView{}},
		"artifact.put":    arcp.ArtifactObject{ArtifactID: "art_1"},
		"artifact.get":    arcp.ArtifactChunk{Data: []byte("arcp doctor")},
		"sessions.list":   arcp.Page[arcp.SessionView]{Items: []arcp.SessionView{{Principal: "alice"}, {Principal: "bob"}, {Principal: "bob"}}},
		"host.agents": arcp.Page[workerAgent]{Items: []workerAgent{{ID: "agent-1", Name: "rev", Status: "disconnected", Executes: []string{"py.rev@1.0.0"}},
			{ID: "agent-2", Name: "up", Status: "idle", Executes: []string{"py.up@1.0.0"}}, {ID: "agent-3", Name: "view", Status: "disconnected"},
			{ID: "agent-4", Name: "earlier", Status: "disconnected", Executes: []string{"py.up@1.0.0"}}}},
	}
	r := newFakeRuntime(t, func(c *fakeConn, env *arcp.Envelope) {
		if env.Type == arcp.SessionListJobs {
			var list []arcp.JobEntry
			p, err := arcp.DecodePayload[arcp.SessionListJobsPayload](env)
			if err != nil {
				t.Error(err)
			}
			for _, id := range slices.Sorted(maps.Keys(waits)) {
				if waits[id].Principal != p.Filter.Principal {
					continue
				}
				list = append(list, arcp.JobEntry{JobID: id, Agent: waits[id].Agent, Status: "queued"})
			}
			c.reply(env, arcp.SessionJobs, arcp.SessionJobsPayload{Jobs: list})
			return
		}
		p, err := arcp.DecodePayload[arcp.ToolInvokePayload](env)
		if err != nil {
			t.Errorf("the client sent %s: %v", env.Type, err)
			return
		}
		answer := answers[p.Tool]
		if p.Tool == "jobs.get" {
			var in struct {
				JobID arcp.JobID `json:"job_id"`
			}
			_ = arcp.Unmarshal(p.Arguments, &in) // an unknown job has no answer
			answer = waits[in.JobID]
		}
		raw, err := arcp.Marshal(answer)
		if err != nil {
			t.Error(err)
		}
		c.complete(env, string(raw))
	})
	o := r.cli("doctor")
	wantOutcome(t, "jobs", o, exitFailed,
		"problem   jobs of alice that wait for a connected worker of py.rev@1.0.0: 2, the oldest job_1 since 2030-01-02 15:04:05; "+
			"start a worker of py.rev@1.0.0, or cancel the jobs; `arcp jobs show job_1` shows the oldest\n", "")
	wantOutcome(t, "jobs of another principal", o, exitFailed,
		"problem   jobs of bob that wait for a connected worker of py.up@1.0.0: 1, the oldest job_5 since 2030-01-02 15:04:05; ", "")
	wantOutcome(t, "agents", o, exitFailed, "problem   the worker rev, agent agent-1, is disconnected, and no other one executes py.rev@1.0.0; start", "")
	for _, text := range []string{"sleep@1.0.0", "echo@1.0.0", "agent-2", "agent-3", "agent-4"} {
		if strings.Contains(o.stdout, text) {
			t.Errorf("%s is a finding:\n%s", text, o.stdout)
		}
	}
}
