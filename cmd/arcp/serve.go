package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/runtime/tool/mcp"
	"github.com/arcpd/arcpd/transport"
)

// serveDefaults are the defaults of `arcp serve` that depend on the machine.
func serveDefaults() map[string]string {
	return map[string]string{"data": defaultData("serve")}
}

func newServe(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a runtime",
		Long: "Runs a runtime until SIGTERM or SIGINT. Each flag is also a key of arcp.yaml and\n" +
			"a variable ARCP_…; `arcp config print` prints the values in effect. SIGHUP reloads\n" +
			"tools, workflows, tokens, the authentication file, the certificate, limits and the log\n" +
			"level, and logs what has changed.\n\n" +
			"When the runtime accepts connections it prints one line to standard output:\n" +
			"listening ws://HOST:PORT/PATH admin http://HOST:PORT",
		Args: noArgs,
	}
	addSettings(cmd, serveDefaults())
	cmd.RunE = action(func(cmd *cobra.Command, _ []string) error {
		load := func() (*settings.Values, error) { return a.settings(cmd.Flags(), serveDefaults()) }
		return a.serve(cmd.Context(), load, nil)
	})
	return cmd
}

// server is a running `arcp serve`. It belongs to the goroutine of serve. Members that handlers read are
// immutable or atomic.
type server struct {
	app     *app
	dev     *dev                             // nil: arcp serve
	load    func() (*settings.Values, error) // reads the settings at the start and on SIGHUP
	values  *settings.Values
	maxData int64 // bound of the stored data in bytes; 0: none
	ends    endpoints
	log     zerolog.Logger

	auth     *auth.Set
	cert     *certificate // nil: no TLS
	registry *prometheus.Registry
	metrics  *serverMetrics
	config   *configuration                  // of the start
	tools    *liveTools                      // nil before newRuntime
	rt       atomic.Pointer[runtime.Runtime] // nil during the start

	tracer  *sdktrace.TracerProvider // nil: no spans are exported; set with rt
	cleanUp func() error             // removes temporary files; set with rt
	key     *backupKey               // nil: the data is in memory; set with rt

	main, admin   net.Listener            // nil: not open
	unix          *transport.UnixListener // nil: not open
	mainSrv       *http.Server
	adminSrv      *http.Server
	failed        chan error      // errors of listeners
	fileChanged   <-chan struct{} // the configuration file has changed; nil: it is not watched
	stdioFinished chan struct{}   // the session on stdin and stdout has ended
}

// serve runs a server until a signal, an error or the end of ctx. d is nil except for `arcp dev`.
func (a *app) serve(ctx context.Context, load func() (*settings.Values, error), d *dev) error {
	began := time.Now()
	signals, stop := notify()
	defer stop()
	s := &server{app: a, dev: d, load: load, failed: make(chan error, 4), stdioFinished: make(chan struct{})}
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	started := make(chan error, 1)
	go func() { started <- s.start(starting) }()
	reload, err := await(started, signals, cancel)
	switch {
	case errors.Is(err, errSecondSignal):
		return err // the start still owns s
	case err != nil:
		s.closeListeners()
		if s.tools != nil {
			s.tools.close()
		}
		if errors.Is(err, errStopped) {
			return nil
		}
		return err
	case context.Cause(starting) == errStopped: // the start succeeded before the cancel
		return s.stop(signals, "a signal during the start")
	}
	if reload {
		s.reload()
	}
	if d != nil { // before announce: files for clients exist when the address is printed
		d.banner(s)
		defer d.watch(s)()
	}
	s.announce()
	notifySystemd(s.log, daemon.SdNotifyReady)
	s.logReady(began)
	return s.run(ctx, signals)
}

// Causes of a cancelled start.
var (
	errStopped      = errors.New("stopped by a signal")
	errSecondSignal = errors.New("stopped by a second signal during the start")
)

// await waits for the end of a start, which is slow if a tool source is slow. SIGINT and SIGTERM cancel the
// start. SIGHUP requests a reload after it.
func await(started <-chan error, signals <-chan os.Signal, cancel context.CancelCauseFunc) (reload bool, err error) {
	stopping := false
	for {
		select {
		case err := <-started:
			return reload, err
		case sig := <-signals:
			switch {
			case sig == syscall.SIGHUP:
				reload = true
			case stopping:
				return false, errSecondSignal
			default:
				stopping = true
				cancel(errStopped)
			}
		}
	}
}

// start performs every step that can fail. Steps without side effects come first.
func (s *server) start(ctx context.Context) error {
	if err := s.configure(); err != nil {
		return err
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	s.registry = prometheus.NewRegistry()
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.metrics = newServerMetrics(s.registry, s.cert)
	s.serveAdmin() // before newRuntime: it answers during recovery
	rt, err := s.newRuntime(ctx)
	if err != nil {
		return err
	}
	s.rt.Store(rt)
	s.warnAboutTokens(s.values)
	if w := descriptorsWarning(s.values); w != "" {
		s.log.Warn().Msg(w)
	}
	if names := s.values.WithoutEffect(); len(names) > 0 {
		s.log.Warn().Strs("settings", names).Msg("settings have no effect in this version")
	}
	if err = s.tools.startWorkers(ctx, rt); err != nil {
		return errors.Join(err, s.shutdown())
	}
	s.serveMain()
	return nil
}

// configure reads and checks the settings and the files that they name.
func (s *server) configure() (err error) {
	v, loadErr := s.load()
	if v != nil {
		s.log = newLog(s.app.stderr, v)
		for _, w := range v.Warnings {
			s.log.Warn().Msg(w)
		}
	}
	cfg, err := newConfiguration(v, loadErr, s.log)
	if err != nil {
		return err
	}
	s.values, s.maxData, s.ends, s.config = v, cfg.maxData, cfg.ends, cfg
	s.auth = auth.NewSet(cfg.auth)
	if cfg.cert != nil {
		s.cert = new(certificate)
		s.cert.current.Store(cfg.cert)
	}
	return s.ends.checkAuth(s.auth)
}

func (s *server) warnAboutTokens(v *settings.Values) {
	for _, w := range shortTokens(v) {
		s.log.Warn().Msg(w)
	}
}

func (s *server) open(ctx context.Context) (err error) {
	if s.ends.listen != "" {
		if s.main, err = openListener(ctx, s.values, "listen", s.ends.listen); err != nil {
			return err
		}
		if s.dev != nil { // at once: from now on connections wait for the server
			s.dev.publishToken(s.main.Addr())
		}
	}
	if s.ends.admin != "" {
		if s.admin, err = openListener(ctx, s.values, "admin", s.ends.admin); err != nil {
			return err
		}
	}
	if s.ends.unix != "" {
		if s.unix, err = transport.ListenUnix(s.ends.unix, s.limits()); err != nil {
			return failf("%s: %w; give another path, or remove the file", s.values.Where("unix"), err)
		}
	}
	return nil
}

func (s *server) closeListeners() {
	if s.main != nil {
		_ = s.main.Close() // the server has ended
	}
	if s.admin != nil {
		_ = s.admin.Close() // the server has ended
	}
	if s.unix != nil {
		_ = s.unix.Close() // the server has ended
	}
}

func (s *server) limits() transport.Limits {
	return transport.Limits{ReadLimit: s.values.Size("max-frame")}
}

// newRuntime opens the data directory and starts a runtime with it.
func (s *server) newRuntime(ctx context.Context) (*runtime.Runtime, error) {
	tools := tool.NewRegistry()
	if s.values.On("demo") {
		if err := demo.Register(tools); err != nil {
			return nil, failf("register tools: %w", err)
		}
	}
	var err error
	if s.tracer, err = newTracerProvider(ctx, s.log); err != nil {
		return nil, err
	}
	st, identity, err := openData(ctx, s.values.Text("data"), s.values.On("new-identity"), s.maxData, s.log)
	if err != nil {
		return nil, err
	}
	if dir := s.values.Text("data"); dir != memory {
		ensureTwoProcs()
		if s.key, err = newBackupKey(dir); err != nil {
			return nil, failf("create the key for backups: %w", errors.Join(err, st.Close()))
		}
	}
	if s.values.Text("data") == memory && s.maxData > 0 {
		limitMemory(s.maxData)
	}
	gcReserve = make([]byte, s.gcReserveBytes())
	goruntime.KeepAlive(gcReserve)
	cfg := s.runtimeConfig()
	cfg.Store, cfg.Auth, cfg.Tools, cfg.Fingerprint = st, s.auth, tools, identity
	if dir := s.values.Text("data"); dir != memory && cfg.MinFree > 0 {
		space := newDiskSpace(dir, uint64(cfg.MinFree), s.log)
		cfg.FreeSpace, cfg.OnFull = space.free, space.full
		registerMinFree(s.registry, cfg.MinFree)
	}
	if cfg.Artifacts, err = openArtifactStorage(s.values); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	cfg.Artifacts.URL = s.values.Text("artifact-url")
	if cfg.Provisioners, cfg.Sealer, err = openProvisioners(ctx, s.values, st); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	if cfg.ResourceDir, s.cleanUp, err = openResources(s.values.Text("data")); err != nil {
		return nil, failf("create the directory of leased resources: %w", errors.Join(err, st.Close()))
	}
	if s.tracer != nil { // a nil pointer in an interface is not nil
		cfg.TracerProvider = s.tracer
	}
	if err := s.startTools(ctx, tools); err != nil {
		return nil, errors.Join(err, st.Close(), s.cleanUp())
	}
	cfg.Refresh = s.tools.refresh
	rt, err := runtime.New(ctx, cfg)
	if err != nil {
		return nil, failf("start the runtime: %w", errors.Join(err, st.Close(), s.cleanUp()))
	}
	return rt, nil
}

// startTools starts the tools of the configuration file, with the lock of the data directory held. It precedes the
// runtime, which registers the tools of workers of the previous run, and whose recovered jobs look up their tools.
func (s *server) startTools(ctx context.Context, registry *tool.Registry) error {
	lists := ""
	if dir := s.values.Text("data"); dir != memory {
		lists = filepath.Join(dir, mcpDir)
	}
	s.tools = newLiveTools(registry, mcp.NewMetrics(s.registry), s.values.Size("max-frame"), lists, s.log)
	if err := s.tools.publish(s.config.tools); err != nil {
		return err
	}
	s.logStarting(len(registry.Tools()))
	s.tools.startServers(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// ensureTwoProcs allows a second thread to run Go code on a single core. Otherwise a thread that waits for
// the disk would block all others.
func ensureTwoProcs() {
	if goruntime.GOMAXPROCS(0) < 2 {
		goruntime.GOMAXPROCS(2)
	}
}

// gcReserve raises the heap size at which the garbage collector runs. Without it a busy server with a small
// heap spends a third of its time on garbage collection. The memory is never written, so it is not resident.
var gcReserve []byte

// gcReserveBytes returns the size of gcReserve: 32 MiB, or a 32nd of the bound of a store in memory if that is
// less, because the garbage before a collection is as large as the reserve.
func (s *server) gcReserveBytes() int64 {
	const most = 32 << 20
	if s.values.Text("data") != memory || s.maxData == 0 {
		return most
	}
	return min(most, s.maxData/32)
}

// runtimeConfig returns the configuration of the runtime. A setting of 0 is off; in runtime.Config 0 is the
// default.
func (s *server) runtimeConfig() runtime.Config {
	v := s.values
	return runtime.Config{
		Log:            s.log,
		Metrics:        s.registry,
		Version:        thisBuild().Version,
		AllowHosts:     allowedHosts(s.ends.listen, v.List("allow-host"), v.On("behind-proxy")),
		AllowOrigins:   v.List("allow-origin"),
		SessionLease:   off(v.Duration("session-lease")),
		ResumeWindow:   off(v.Duration("resume-window")),
		Heartbeat:      off(v.Duration("heartbeat")),
		HeartbeatBlock: v.Text("heartbeat-recovery") == "block",
		LogToolErrors:  v.On("log-tool-errors"),
		MaxFrame:       off(v.Size("max-frame")),
		DraftProfile:   v.Text("draft-profile"),
		AckWindow:      off(v.Number("ack-window")),
		ReplayEvents:   off(v.Number("replay-events")),
		ReplayBytes:    off(v.Size("replay-bytes")),
		BacklogBytes:   off(v.Size("backlog-bytes")),
		CommitDelay:    v.Duration("commit-delay"),
		Retention:      off(v.Duration("retention")),
		MaxData:        off(s.maxData),
		MinFree:        off(v.Size("min-free")),
		Limits:         limits(v),

		Leases: runtime.LeasePolicy{RequireModel: v.On("require-model-lease"), PreemptExpired: v.On("preempt-expired")},
	}
}

// limits returns the limits of the runtime, which SIGHUP reloads.
func limits(v *settings.Values) runtime.Limits {
	return runtime.Limits{
		MaxConnections:          maxConnections(v),
		MaxSessions:             off(v.Number("max-sessions")),
		MaxSessionsPerPrincipal: v.Number("max-sessions-per-principal"),
		MaxJobs:                 off(v.Number("max-jobs")),
		MaxJobsPerPrincipal:     v.Number("max-jobs-per-principal"),
		MaxJobsPerSession:       off(v.Number("max-jobs-per-session")),
		StartTimeout:            v.Duration("start-timeout"),
		RatePerMin:              off(v.Number("rate")),
		MaxArguments:            maxArguments(v),
		MaxArtifact:             off(v.Size("max-artifact")),
		MaxArtifactPerPrincipal: off(v.Size("max-artifact-per-principal")),
	}
}

// off maps 0, which is off in the settings, to a negative value, which is off in runtime.Config.
func off[T int | int64 | time.Duration](n T) T {
	if n == 0 {
		return -1
	}
	return n
}

func (s *server) probes() []probe {
	return []probe{{"runtime", func() error {
		if rt := s.rt.Load(); rt != nil {
			return rt.Ready()
		}
		return errors.New("starting")
	}}}
}

func (s *server) serveAdmin() {
	if s.admin == nil {
		return
	}
	s.admin = transport.NewGate(transport.GateLimits{Open: maxAdmin}, nil).ProxyListener(s.admin)
	s.adminSrv = s.httpServer(s.adminHandler(), adminTimeout)
	go s.watch("admin listener", func() error { return s.adminSrv.Serve(s.admin) })
}

func (s *server) serveMain() {
	if s.main != nil {
		up := s.rt.Load().Upgrader()
		listen := s.rt.Load().Gate().Listener
		if s.values.On("behind-proxy") {
			listen = s.rt.Load().Gate().ProxyListener
		}
		s.main = listen(s.main)
		s.mainSrv = s.httpServer(s.mainHandler(up), mainTimeout)
		secured := s.secured(up) // here, because a reload replaces s.values
		go s.watch("listener", func() error { return s.mainSrv.Serve(secured) })
	}
	if s.unix != nil {
		go s.watch("unix socket", s.serveUnix)
	}
	if s.ends.stdio {
		go s.serveStdio(s.limits())
	}
}

// watch runs serve and reports its error, unless the listener was closed.
func (s *server) watch(listener string, serve func() error) {
	err := serve()
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return
	}
	s.failed <- failf("%s: %w", listener, err)
}

// serveConn serves one connection.
func (s *server) serveConn(conn transport.Conn) {
	_ = s.rt.Load().Serve(context.Background(), conn) // the runtime logs the reason of the end
}

// secured returns the main listener with TLS, if configured. Without TLS and without a proxy it answers
// handshakes directly.
func (s *server) secured(up *transport.Upgrader) net.Listener {
	switch {
	case s.cert != nil:
		return tlsListener(s.main, s.cert)
	case s.values.On("behind-proxy"):
		return s.main
	}
	return up.Direct(s.main, s.values.Text("path"), s.serveConn)
}

// announce prints the listening line, to standard error with --stdio.
func (s *server) announce() {
	out := s.app.stdout
	if s.ends.stdio {
		out = s.app.stderr
	}
	if line := s.listening(); line != "" {
		fmt.Fprintln(out, "listening "+line)
	}
}

func (s *server) listening() string {
	line := s.clientURL()
	if admin := s.adminURL(); admin != "" {
		line += " admin " + admin
	}
	return line
}

// clientURL returns the URL for clients, or "" if there is only standard input.
func (s *server) clientURL() string {
	switch {
	case s.main != nil:
		return s.url()
	case s.unix != nil:
		return unixURL(s.ends.unix)
	}
	return ""
}

// url returns the URL of the main listener.
func (s *server) url() string {
	scheme := "ws"
	if s.cert != nil {
		scheme = "wss"
	}
	return scheme + "://" + s.main.Addr().String() + s.values.Text("path")
}

// adminURL returns the URL of metrics and health, or "".
func (s *server) adminURL() string {
	switch {
	case s.admin != nil:
		return "http://" + s.admin.Addr().String()
	case s.main == nil:
		return ""
	case s.cert != nil:
		return "https://" + s.main.Addr().String()
	}
	return "http://" + s.main.Addr().String()
}
