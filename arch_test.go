package arcpd_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/arcpd/arcpd/"

// common are packages that every package may import.
var common = []string{"internal/clip", "internal/osfile"}

// allowed has the packages of this module that a package may import, by its directory. A pattern
// that ends in /... stands for a tree. Tests of a package may import more.
var allowed = map[string][]string{
	"arcp":              {},
	"arcp/client":       {"arcp", "arcp/draft", "transport", "internal/backoff"},
	"arcp/draft":        {"arcp"},
	"arcp/draft/strict": {},
	"auth":              {"arcp", "internal/yamlsyntax"},
	"cmd/arcp": {
		"arcp",
		"arcp/client",
		"arcp/draft/strict",
		"auth",
		"cmd/arcp/...",
		"conformance",
		"conformance/mcpcheck",
		"internal/lograte",
		"runtime",
		"runtime/credential",
		"runtime/store/...",
		"runtime/tool",
		"runtime/tool/demo",
		"runtime/tool/exec",
		"runtime/tool/mcp",
		"runtime/tool/workflow",
		"transport",
	},
	"cmd/arcp/internal/stdioworker": {
		"internal/backoff",
		"runtime",
		"runtime/tool/exec",
		"transport",
	},
	"cmd/arcp/internal/top": {},
	"cmd/arcp/internal/toolset": {
		"arcp",
		"cmd/arcp/internal/settings",
		"runtime/tool",
		"runtime/tool/exec",
		"runtime/tool/workflow",
	},
	"cmd/arcp/...": {
		"arcp",
		"arcp/client",
		"arcp/draft",
		"auth",
		"cmd/arcp/...",
		"internal/yamlsyntax",
		"runtime",
		"transport",
	},
	"conformance": {
		"arcp",
		"arcp/draft",
		"arcp/draft/strict",
		"arcp/client",
		"transport",
		"conformance/...",
		"internal/yamlsyntax",
	},
	"conformance/chaos":    {"arcp", "arcp/draft", "arcp/draft/strict", "transport"},
	"conformance/mcpcheck": {},
	"conformance/...":      {"arcp", "arcp/client", "transport", "conformance/..."},
	"internal/backoff":     {},
	"internal/clip":        {},
	"internal/e2e":         {},
	"internal/lograte":     {},
	"internal/osfile":      {},
	"internal/race":        {},
	"internal/specdoc":     {"arcp"},
	"internal/yamlsyntax":  {},
	"runtime": {
		"arcp",
		"auth",
		"internal/lograte",
		"runtime/credential",
		"runtime/internal/...",
		"runtime/store",
		"runtime/tool",
		"transport",
	},
	"runtime/credential":        {"arcp", "internal/backoff", "runtime/internal/records", "runtime/store"},
	"runtime/internal/actor":    {"arcp", "auth", "runtime/internal/approval", "runtime/store"},
	"runtime/internal/agentref": {"arcp"},
	"runtime/internal/agents": {
		"arcp",
		"runtime/internal/records",
		"runtime/internal/txn",
		"runtime/store",
	},
	"runtime/internal/agentservice": {
		"arcp",
		"auth",
		"runtime/internal/actor",
		"runtime/internal/agents",
		"runtime/internal/approval",
		"runtime/internal/audit",
		"runtime/internal/metrics",
		"runtime/internal/session",
		"runtime/internal/txn",
		"runtime/internal/worker",
		"runtime/store",
	},
	"runtime/internal/approval": {"arcp"},
	"runtime/internal/artifact": {"arcp", "runtime/internal/records", "runtime/store"},
	"runtime/internal/audit":    {"arcp"},
	"runtime/internal/builtin": {
		"arcp",
		"auth",
		"runtime/credential",
		"runtime/internal/actor",
		"runtime/internal/agents",
		"runtime/internal/agentservice",
		"runtime/internal/approval",
		"runtime/internal/artifact",
		"runtime/internal/audit",
		"runtime/internal/catalog",
		"runtime/internal/engine",
		"runtime/internal/jobview",
		"runtime/internal/lease",
		"runtime/internal/metrics",
		"runtime/internal/paging",
		"runtime/internal/questions",
		"runtime/internal/resources",
		"runtime/internal/resourceservice",
		"runtime/internal/schedule",
		"runtime/internal/session",
		"runtime/internal/txn",
		"runtime/store",
		"runtime/tool",
	},
	"runtime/internal/catalog": {"arcp", "runtime/internal/agentref", "runtime/tool"},
	"runtime/internal/conn": {
		"arcp",
		"arcp/draft",
		"auth",
		"runtime/credential",
		"runtime/internal/actor",
		"runtime/internal/approval",
		"runtime/internal/artifact",
		"runtime/internal/audit",
		"runtime/internal/builtin",
		"runtime/internal/catalog",
		"runtime/internal/engine",
		"runtime/internal/eventlog",
		"runtime/internal/jobview",
		"runtime/internal/lease",
		"runtime/internal/metrics",
		"runtime/internal/pool",
		"runtime/internal/questions",
		"runtime/internal/session",
		"runtime/internal/session/machine",
		"runtime/internal/tracing",
		"runtime/internal/txn",
		"runtime/internal/worker",
		"runtime/store",
		"runtime/tool",
		"transport",
	},
	"runtime/internal/digest": {"arcp"},
	"runtime/internal/engine": {
		"arcp",
		"runtime/credential",
		"runtime/internal/approval",
		"runtime/internal/artifact",
		"runtime/internal/audit",
		"runtime/internal/catalog",
		"runtime/internal/digest",
		"runtime/internal/eventlog",
		"runtime/internal/job",
		"runtime/internal/job/authority",
		"runtime/internal/job/family",
		"runtime/internal/job/question",
		"runtime/internal/lease",
		"runtime/internal/metrics",
		"runtime/internal/pool",
		"runtime/internal/schedule",
		"runtime/internal/tracing",
		"runtime/internal/txn",
		"runtime/store",
		"runtime/tool",
		"runtime/tool/access",
	},
	"runtime/internal/eventlog": {"arcp", "runtime/store"},
	"runtime/internal/housekeeping": {
		"arcp",
		"auth",
		"runtime/internal/agentservice",
		"runtime/internal/approval",
		"runtime/internal/artifact",
		"runtime/internal/engine",
		"runtime/internal/eventlog",
		"runtime/internal/metrics",
		"runtime/internal/questions",
		"runtime/internal/records",
		"runtime/internal/resourceservice",
		"runtime/internal/session",
		"runtime/internal/space",
		"runtime/store",
	},
	"runtime/internal/job": {"arcp"},
	"runtime/internal/job/authority": {
		"arcp",
		"runtime/internal/approval",
		"runtime/internal/lease",
	},
	"runtime/internal/job/family": {
		"arcp",
		"runtime/internal/job/authority",
		"runtime/internal/lease",
	},
	"runtime/internal/job/question": {"arcp", "runtime/internal/approval"},
	"runtime/internal/jobview": {
		"arcp",
		"runtime/internal/approval",
		"runtime/internal/audit",
		"runtime/internal/paging",
		"runtime/store",
	},
	"runtime/internal/lease":   {"arcp"},
	"runtime/internal/metrics": {"arcp"},
	"runtime/internal/paging":  {"arcp"},
	"runtime/internal/pool":    {},
	"runtime/internal/questions": {
		"arcp",
		"runtime/internal/agents",
		"runtime/internal/approval",
		"runtime/internal/audit",
		"runtime/internal/metrics",
		"runtime/internal/records",
		"runtime/internal/session",
		"runtime/internal/txn",
		"runtime/store",
	},
	"runtime/internal/records": {"arcp", "runtime/store"},
	"runtime/internal/resources": {
		"arcp",
		"internal/backoff",
		"runtime/internal/records",
		"runtime/store",
	},
	"runtime/internal/resourceservice": {
		"arcp",
		"runtime/internal/agents",
		"runtime/internal/engine",
		"runtime/internal/metrics",
		"runtime/internal/questions",
		"runtime/internal/resources",
		"runtime/internal/txn",
		"runtime/store",
		"runtime/tool",
		"runtime/tool/local",
	},
	"runtime/internal/rule":     {"arcp"},
	"runtime/internal/schedule": {"arcp"},
	"runtime/internal/session": {
		"arcp",
		"runtime/internal/agentref",
		"runtime/internal/approval",
		"runtime/internal/catalog",
		"runtime/internal/records",
		"runtime/internal/txn",
		"runtime/store",
		"runtime/tool",
	},
	"runtime/internal/session/machine": {"arcp"},
	"runtime/internal/space":           {},
	"runtime/internal/tracing":         {"arcp", "runtime/store"},
	"runtime/internal/txn":             {"arcp", "runtime/store"},
	"runtime/internal/worker": {
		"arcp",
		"runtime/internal/agents",
		"runtime/internal/approval",
		"runtime/internal/artifact",
		"runtime/internal/catalog",
		"runtime/internal/lease",
		"runtime/internal/metrics",
		"runtime/tool",
	},
	"runtime/store":           {"arcp"},
	"runtime/store/storetest": {"arcp", "runtime/store"},
	"runtime/store/...":       {"arcp", "runtime/store/..."},
	"runtime/tool": {
		"arcp",
		"runtime/internal/agentref",
		"runtime/internal/rule",
		"runtime/tool/access",
	},
	"runtime/tool/access":     {"arcp"},
	"runtime/tool/demo":       {"arcp", "runtime/tool", "runtime/tool/local"},
	"runtime/tool/exec":       {"arcp", "runtime/tool", "runtime/tool/local"},
	"runtime/tool/local":      {"arcp", "runtime/tool"},
	"runtime/tool/mcp":        {"arcp", "internal/backoff", "runtime/tool", "runtime/tool/exec"},
	"runtime/tool/tooltest":   {"arcp", "runtime/tool", "runtime/tool/access"},
	"runtime/tool/toolworker": {"arcp", "arcp/client", "runtime/tool", "runtime/tool/access"},
	"runtime/tool/workflow":   {"arcp", "runtime/internal/rule", "runtime/tool"},
	"transport":               {},
	"transport/transporttest": {"transport"},
}

// pure lists the packages that only decide.
var pure = []string{
	"runtime/internal/approval",
	"runtime/internal/job",
	"runtime/internal/job/authority",
	"runtime/internal/job/family",
	"runtime/internal/job/question",
	"runtime/internal/lease",
	"runtime/internal/schedule",
	"runtime/internal/session/machine",
}

// effectPackages are the imports that a pure package must not have.
var effectPackages = []string{
	"context",
	"crypto/rand",
	"github.com/rs/zerolog",
	"log",
	"log/slog",
	"math/rand",
	"math/rand/v2",
	"net",
	"os",
	"sync",
}

// clockFunctions of package time read or wait for a clock; a pure function gets the time as an
// argument.
var clockFunctions = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}

// onlyIn lists the packages and files that may import a library.
var onlyIn = map[string][]string{
	"nhooyr.io/websocket":                         {"transport"},
	"github.com/gobwas/ws":                        {"transport"},
	"github.com/go-json-experiment/json":          {"arcp/codec.go"},
	"github.com/go-json-experiment/json/jsontext": {"arcp/codec.go"},
	"github.com/cockroachdb/apd/v3":               {"runtime/internal/lease"},
	"github.com/cockroachdb/pebble/v2":            {"runtime/store/pebble"},
	"github.com/golang-jwt/jwt/v5":                {"auth"},
	"github.com/santhosh-tekuri/jsonschema/v6":    {"runtime/tool"},
	"github.com/RaduBerinde/btreemap":             {"runtime/tool/state.go", "runtime/internal/questions"},
	"github.com/hashicorp/golang-lru/v2":          {"runtime/internal/catalog/catalog.go"},
	"github.com/spf13/cobra":                      {"cmd/arcp"},
	"github.com/modelcontextprotocol/go-sdk/mcp":  {"runtime/tool/mcp", "cmd/arcp/internal/mcpserve", "conformance/mcpcheck"},
	"charm.land/bubbletea/v2":                     {"cmd/arcp/internal/top"},
	"cel.dev/cel-go/cel":                          {"runtime/internal/rule", "runtime/tool/workflow"},
	"github.com/teambition/rrule-go":              {"runtime/internal/schedule"},
	"go.opentelemetry.io/otel/trace":              {"runtime/internal/tracing", "runtime/config.go"},
	"go.opentelemetry.io/otel/sdk/trace":          {"cmd/arcp"},
}

// rule finds the entry of a directory, the most specific one first.
func rule(dir string) ([]string, bool) {
	if r, ok := allowed[dir]; ok {
		return r, true
	}
	for d := dir; d != "."; d = path.Dir(d) {
		if r, ok := allowed[d+"/..."]; ok {
			return r, true
		}
	}
	return nil, false
}

func within(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		tree, ok := strings.CutSuffix(p, "/...")
		return p == dir || ok && strings.HasPrefix(dir+"/", tree+"/")
	})
}

// goFile is a Go file of this module.
type goFile struct {
	path   string // with slashes
	isTest bool
	syntax *ast.File
	fset   *token.FileSet
}

// goFiles parses the Go files of this module, once.
var goFiles = sync.OnceValues(func() (files []goFile, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && file != "."):
			return fs.SkipDir
		case !strings.HasSuffix(file, ".go"):
			return nil
		}
		f, err := parser.ParseFile(fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		files = append(files, goFile{path: filepath.ToSlash(file), isTest: strings.HasSuffix(file, "_test.go"), syntax: f, fset: fset})
		return err
	})
	return files, err
})

func allFiles(t *testing.T) []goFile {
	t.Helper()
	files, err := goFiles()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sources calls fn with every Go file that is not a test.
func sources(t *testing.T, fn func(file string, f *ast.File)) {
	t.Helper()
	for _, f := range allFiles(t) {
		if !f.isTest {
			fn(f.path, f.syntax)
		}
	}
}

func imports(f *ast.File) (paths []string) {
	for _, i := range f.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil {
			paths = append(paths, p)
		}
	}
	return paths
}

func TestImportsFollowTheMap(t *testing.T) {
	files := 0
	sources(t, func(file string, f *ast.File) {
		files++
		dir := path.Dir(file)
		ours, ok := rule(dir)
		if !ok {
			t.Errorf("%s: the package is not on the import map", file)
		}
		for _, p := range imports(f) {
			if own, ok := strings.CutPrefix(p, module); ok && !within(ours, own) && !slices.Contains(common, own) {
				t.Errorf("%s imports %s, which the import map does not allow", file, own)
			}
			if where, ok := onlyIn[p]; ok && !slices.Contains(where, file) && !slices.Contains(where, dir) {
				t.Errorf("%s imports %s, which only %v may import", file, p, where)
			}
		}
	})
	if files < 50 {
		t.Fatalf("only %d files looked at", files)
	}
}

func TestPurePackagesOnlyDecide(t *testing.T) {
	seen := map[string]bool{}
	sources(t, func(file string, f *ast.File) {
		dir := path.Dir(file)
		if !slices.Contains(pure, dir) {
			return
		}
		seen[dir] = true
		for _, p := range imports(f) {
			if slices.Contains(effectPackages, p) {
				t.Errorf("%s imports %s: a pure package takes the time and returns the actions for its caller", file, p)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && slices.Contains(clockFunctions, sel.Sel.Name) {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
					t.Errorf("%s calls time.%s: the time is an argument", file, sel.Sel.Name)
				}
			}
			return true
		})
	})
	if len(seen) != len(pure) {
		t.Errorf("looked at %v, want all of %v", seen, pure)
	}
}

func TestWebSocketLibraryIsInOneFile(t *testing.T) {
	var files []string
	sources(t, func(file string, f *ast.File) {
		if slices.Contains(imports(f), "nhooyr.io/websocket") {
			files = append(files, file)
		}
	})
	if len(files) != 1 {
		t.Errorf("nhooyr.io/websocket is imported by %v, want exactly one file: changing it is then one import", files)
	}
}

// Bounds of a type. largeStructs lists the exceptions with their own bounds, which only fall.
const (
	maxFields  = 25
	maxMethods = 40
)

// largeStructs have more fields than maxFields.
var largeStructs = map[string]int{
	"runtime.Config":                   39, // configuration
	"runtime/internal/conn.Options":    32, // configuration
	"runtime/internal/metrics.Metrics": 50, // metrics
	"runtime/internal/approval.Row":    34, // as it is stored and shown
}

func TestTypesAreSmall(t *testing.T) {
	fields, methods := make(map[string]int), make(map[string]int)
	sources(t, func(file string, f *ast.File) {
		dir := path.Dir(file)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					methods[dir+"."+receiver(d.Recv.List[0].Type)]++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok {
						if st, ok := ts.Type.(*ast.StructType); ok {
							fields[dir+"."+ts.Name.Name] = st.Fields.NumFields()
						}
					}
				}
			}
		}
	})
	compare := func(members string, found map[string]int, most int, listed map[string]int) {
		for name, n := range found {
			if limit := max(most, listed[name]); n > limit {
				t.Errorf("%s has %d %s, want at most %d", name, n, members, limit)
			}
		}
		for name, n := range listed {
			if found[name] < n {
				t.Errorf("%s has %d %s: its bound of %d is too high", name, found[name], members, n)
			}
		}
	}
	compare("fields", fields, maxFields, largeStructs)
	compare("methods", methods, maxMethods, nil)
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// avoided are names that a reader would have to decipher. CONTRIBUTING.md says how to name
// things.
var avoided = strings.Fields(`absorb afterwards again ballast bearable beat bed book brief clan course cut deed desk edge effort ended endow engage
	eternity executors floor floors flow fresh ghosts given glance greeting half haunted hear heed hire hopeless intake
	introduce judgement keep keeper kept kin landlord lane late lessor linger looks mark meet members memo news noise
	obstacle odd outlet over overheard owing passing patientsink place playedrequest prowl pump quick reached rig ruling
	said seen settle settled sightings stage standstill stopper strictly strike takeleave tally tap temper tenancy tenant
	terms there told toolate trust turns verdict weighing welcome who wish witness workforce`)

// memberTerms are avoided words that are terms of the domain as the name of a function, a method,
// a field or a constant: the trust level, the members of a JSON object or of a process group, and
// the final state of a job, a session, a lease or a stream.
var memberTerms = strings.Fields("ended members trust")

// avoidedLocals are refused as names of parameters, results and variables, also in tests.
var avoidedLocals = strings.Fields("what who whoever whom whose")

func TestNamesArePlain(t *testing.T) {
	for _, f := range allFiles(t) {
		if name := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test"); slices.Contains(avoided, name) {
			t.Errorf("%s: the name of the file says nothing to a newcomer", f.path)
		}
		refuse := func(kind string, names ...*ast.Ident) {
			checked := !f.isTest || kind == "type" || kind == "function"
			for _, id := range names {
				name := strings.ToLower(id.Name)
				term := slices.Contains(memberTerms, name) && kind != "type"
				if checked && slices.Contains(avoided, name) && !term {
					t.Errorf("%s: the name of %s %s says nothing to a newcomer", f.path, kind, id.Name)
				}
			}
		}
		refuseLocal := func(names ...ast.Expr) {
			for _, e := range names {
				if id, ok := e.(*ast.Ident); ok && slices.Contains(avoidedLocals, strings.ToLower(id.Name)) {
					t.Errorf("%s: the name of variable %s says nothing to a newcomer", f.path, id.Name)
				}
			}
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				refuseLocal(n.Lhs...)
			case *ast.RangeStmt:
				refuseLocal(n.Key, n.Value)
			case *ast.ValueSpec:
				for _, id := range n.Names {
					refuseLocal(id)
				}
			case *ast.Field: // also of parameters and results
				for _, id := range n.Names {
					refuseLocal(id)
				}
			case *ast.FuncDecl:
				refuse("function", n.Name)
			case *ast.TypeSpec:
				refuse("type", n.Name)
			case *ast.GenDecl:
				for _, s := range n.Specs {
					if v, ok := s.(*ast.ValueSpec); ok && n.Tok == token.CONST {
						refuse("constant", v.Names...)
					}
				}
			case *ast.StructType:
				for _, field := range n.Fields.List {
					refuse("field", field.Names...)
				}
			case *ast.InterfaceType:
				for _, method := range n.Methods.List {
					refuse("method", method.Names...)
				}
			}
			return true
		})
	}
}

// The comment of a function or a type begins with its name, as go doc shows it. Comments of tests,
// benchmarks, examples and fuzz tests say what is promised.
func TestCommentsBeginWithTheName(t *testing.T) {
	const articles, end = `(A |An |The )?`, `\b`
	check := func(f *goFile, doc *ast.CommentGroup, name string) {
		if text := doc.Text(); text != "" && !regexp.MustCompile("^"+articles+name+end).MatchString(text) {
			t.Errorf("%s: the comment of %s begins with another name", f.fset.Position(doc.Pos()), name)
		}
	}
	reported := regexp.MustCompile(`^(Test|Benchmark|Example|Fuzz)`)
	for _, f := range allFiles(t) {
		for _, d := range f.syntax.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !f.isTest || !reported.MatchString(d.Name.Name) {
					check(&f, d.Doc, d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if ts, ok := s.(*ast.TypeSpec); ok && ts.Doc != nil {
						check(&f, ts.Doc, ts.Name.Name)
					} else if ok && !d.Lparen.IsValid() {
						check(&f, d.Doc, ts.Name.Name)
					}
				}
			}
		}
	}
}
