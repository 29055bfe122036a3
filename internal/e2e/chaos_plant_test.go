package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/conformance/chaos"
	"github.com/arcpd/arcpd/internal/race"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/pebble"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/runtime/tool/demo"
	"github.com/arcpd/arcpd/runtime/tool/workflow"
)

// Variables that TestMain reads. With the name of a plant the process is a runtime with that
// bug, listening at an address, with its data in a directory.
const (
	plantEnv   = "ARCP_CHAOS_PLANT"
	listenEnv  = "ARCP_CHAOS_LISTEN"
	dataEnv    = "ARCP_CHAOS_DATA"
	effectsEnv = "ARCP_CHAOS_EFFECTS" // file with the effects of the workflow
)

// harmless is the plant without a bug.
const harmless = "nothing"

// plant is a bug of the storage or of a tool.
type plant struct {
	commit          func(p *planted, writes []*store.Write, results []store.Result) error
	forgetArtifacts bool // artifacts are only in memory
	repeatEffects   bool // a restart repeats the latest effect
	onlyRFC         bool // clients of the draft dialect cannot see it
}

// plants are the bugs by name.
var plants = map[string]*plant{
	harmless: {commit: (*planted).commit},
	"drop":   {commit: dropping(arcp.Log)},
	"chunk":  {commit: dropping(arcp.StreamChunk), onlyRFC: true},
	"forget": {commit: (*planted).commit, forgetArtifacts: true, onlyRFC: true},
	"early":  {commit: (*planted).tooEarly},
	"reuse":  {commit: (*planted).reusing},
	"hide":   {commit: dropping(arcp.EventEmit)},
	"repeat": {commit: (*planted).commit, repeatEffects: true},
	"skip":   {commit: (*planted).skipping, onlyRFC: true},
}

// planted is a store with a bug. Only the committer calls Commit.
type planted struct {
	store.Store
	plant   *plant
	durable string // the directory that tooEarly has made durable
	n       int    // chances that the bug has had
}

// Commit implements store.Store.
func (p *planted) Commit(writes []*store.Write, results []store.Result) error {
	return p.plant.commit(p, writes, results)
}

func (p *planted) commit(writes []*store.Write, results []store.Result) error {
	return p.Store.Commit(writes, results)
}

// The frequency of each bug among the writes that could show it.
const (
	dropEvery  = 3  // writes of logs
	reuseEvery = 3  // runs of several events
	earlyAfter = 30 // commits
)

// dropping returns a Commit that reports an event of a type as appended that it does not append.
func dropping(t arcp.Type) func(p *planted, writes []*store.Write, results []store.Result) error {
	return func(p *planted, writes []*store.Write, results []store.Result) error {
		for _, w := range writes {
			op := store.Find[*store.AppendEvents](w)
			if op == nil || len(op.Events) == 0 {
				continue
			}
			if n := len(op.Events) / 2; op.Events[n].Type == t {
				if p.n++; p.n%dropEvery == 0 {
					op.Events = slices.Delete(slices.Clone(op.Events), n, n+1)
				}
			}
		}
		return p.commit(writes, results)
	}
}

// tooEarly returns before the data is durable: from some commit on a crash loses everything,
// because the next start finds only the older data.
func (p *planted) tooEarly(writes []*store.Write, results []store.Result) error {
	if p.n++; p.n == earlyAfter {
		if err := p.Backup(context.Background(), p.durable); err != nil {
			return err
		}
	}
	return p.commit(writes, results)
}

// reusing gives the first event of a run the same number as the event before it.
func (p *planted) reusing(writes []*store.Write, results []store.Result) error {
	err := p.commit(writes, results)
	for _, r := range results {
		for i := range r.Runs {
			if len(r.Runs[i].Events) < 2 || r.Runs[i].First < 2 {
				continue
			}
			if p.n++; p.n%reuseEvery == 0 {
				r.Runs[i].First--
			}
		}
	}
	return err
}

// skipping stores a later next occurrence of each schedule, which counts after a crash.
func (p *planted) skipping(writes []*store.Write, results []store.Result) error {
	for _, w := range writes {
		for _, part := range append(w.With, w) {
			for _, o := range part.Ops {
				if r, ok := o.(*store.PutRecord); ok && strings.HasSuffix(r.Key, "/schedule") {
					r.Value = later(r.Value)
				}
			}
		}
	}
	return p.commit(writes, results)
}

// later moves the next occurrence in the record of a schedule by a multiple of all intervals.
func later(record []byte) []byte {
	var members map[string]any
	if err := json.Unmarshal(record, &members); err != nil {
		panic(err)
	}
	text, _ := members["next"].(string)
	next, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return record // there is no next occurrence
	}
	members["next"] = next.Add(6 * time.Second)
	changed, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return changed
}

// openPlanted opens the store with the data that was durable when it was last killed.
func openPlanted(dir, plant string) (*planted, error) {
	p := &planted{plant: plants[plant], durable: dir + ".durable"}
	if _, err := os.Stat(p.durable); err == nil {
		if err := errors.Join(os.RemoveAll(dir), os.Rename(p.durable, dir)); err != nil {
			return nil, err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var err error
	p.Store, err = pebble.Open(dir, pebble.Options{})
	return p, err
}

// registerWorkflow registers the workflow of chaos.Config.Effects.
func registerWorkflow(tools *tool.Registry) error {
	for name, recovery := range map[string]tool.Recovery{"chaos.once": tool.RecoveryFail, "chaos.again": tool.RecoveryRerun} {
		t, err := tool.NewRaw(tool.Capability{Name: name, Recovery: recovery, SideEffect: tool.SideEffectWrite}, appendEffect)
		if err == nil {
			err = tools.Register(t)
		}
		if err != nil {
			return err
		}
	}
	effect := func(name, step string) workflow.Call {
		return workflow.Call{Tool: name, Arguments: map[string]any{"mark": "=input.mark", "step": step}}
	}
	refund := effect("chaos.again", "refund")
	all, err := workflow.New(workflow.Config{
		Capability: tool.Capability{Name: "chaos.workflow"},
		Steps: map[string]workflow.Step{
			"charge": {Call: effect("chaos.once", "charge"), OnFailure: &refund},
			"count":  {Call: workflow.Call{Tool: "demo.count", Arguments: map[string]any{"to": "=input.to", "interval_ms": 20}}, Needs: []string{"charge"}},
			"pack":   {Call: effect("chaos.again", "pack"), Needs: []string{"charge"}},
			"ship":   {Call: effect("chaos.once", "ship"), Needs: []string{"count", "pack"}},
		},
		Result: "=input.mark",
	})
	for _, t := range all {
		err = cmp.Or(err, tools.Register(t))
	}
	return err
}

// appendEffect appends the effect of a call to the file of effects. It takes a while, so that a kill
// may come between the effect and the end of the call.
func appendEffect(_ context.Context, job tool.Job, args arcp.Raw) (arcp.Raw, error) {
	f, err := os.OpenFile(os.Getenv(effectsEnv), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(f, "%s %s\n", job.ID(), args)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	time.Sleep(effectTime)
	return args, nil
}

// repeatLatest appends the latest effect again.
func repeatLatest() error {
	name := os.Getenv(effectsEnv)
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	lines := slices.Collect(bytes.Lines(text))
	return os.WriteFile(name, append(text, lines[len(lines)-1]...), 0o600)
}

// effectTime is long enough that some kills hit a call.
const effectTime = 300 * time.Millisecond

// servePlanted is a runtime on a store with a bug, until it is killed.
func servePlanted(plant string) error {
	st, err := openPlanted(os.Getenv(dataEnv), plant)
	if err != nil {
		return err
	}
	var credentials auth.Config
	for _, p := range chaosPrincipals {
		if err := credentials.AddToken(auth.Token{Principal: p.Name, Secret: auth.Secret(p.Token), Roles: auth.LocalRoles()}); err != nil {
			return err
		}
	}
	if st.plant.repeatEffects {
		if err := repeatLatest(); err != nil {
			return err
		}
	}
	tools := tool.NewRegistry()
	if err := cmp.Or(demo.Register(tools), registerWorkflow(tools)); err != nil {
		return err
	}
	cfg := runtime.Config{Store: st, Auth: auth.NewSet(&credentials), Tools: tools, ReplayEvents: -1, ReplayBytes: -1, MinFree: -1}
	if !st.plant.forgetArtifacts {
		cfg.Artifacts.Dir = os.Getenv(dataEnv) + ".artifacts"
	}
	rt, err := runtime.New(context.Background(), cfg)
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", os.Getenv(listenEnv))
	if err != nil {
		return err
	}
	fmt.Printf("listening ws://%s/arcp\n", ln.Addr())
	return http.Serve(ln, rt.Handler())
}

// TestChaosFindsPlantedBugs checks that a campaign of the clients of either dialect fails for
// planted bugs of a durable store, and passes without them.
func TestChaosFindsPlantedBugs(t *testing.T) {
	endToEnd(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, plant := range plants {
		if name != harmless && race.Enabled {
			continue // the campaign has the same code for each bug
		}
		for _, d := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
			if d == arcp.DialectDraft && plant.onlyRFC {
				continue
			}
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				if name != harmless { // which must find nothing, also no schedule that is late
					t.Parallel()
				}
				findPlanted(t, self, name, d)
			})
		}
	}
}

// findPlanted runs campaigns in a dialect until one finds the planted bug.
func findPlanted(t *testing.T, self, plant string, d arcp.Dialect) {
	c := campaign(t)
	c.Time, c.KillEvery, c.Sessions, c.Dialects = 6*time.Second, 1500*time.Millisecond, 16, []arcp.Dialect{d}
	tries := 8 // the bugs want chances, which a slow machine has fewer of
	if plant == harmless {
		c.Time, tries = 3*time.Second, 1
	}
	o := new(chaos.Outcome)
	for n := 0; n < tries && o.OK(); n++ {
		c.Effects = t.TempDir() + "/effects"
		v := &victim{program: self, output: captureStderr(t), env: []string{plantEnv + "=" + plant, listenEnv + "=" + freeAddr(t), dataEnv + "=" + t.TempDir() + "/data", effectsEnv + "=" + c.Effects}}
		var err error
		if o, err = chaos.Run(t.Context(), v, c); err != nil {
			t.Fatal(err)
		}
		t.Log(o)
	}
	if o.OK() != (plant == harmless) {
		t.Errorf("found %v", o.Findings[:min(len(o.Findings), 5)])
	}
}

// plantedMain is TestMain of a process that is a runtime with a bug.
func plantedMain(plant string) {
	if plants[plant] == nil {
		panic("no such plant: " + plant)
	}
	fmt.Fprintln(os.Stderr, servePlanted(plant))
	os.Exit(1)
}
