package arcpd_test

import (
	"bytes"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// codeNames has the identifiers that documents may write as X.Y, by X: those of the packages of
// this module by package, and the methods and fields of their types by type.
type codeNames map[string]map[string]bool

func (n codeNames) add(of, name string) {
	if n[of] == nil {
		n[of] = make(map[string]bool)
	}
	n[of][name] = true
}

// addMember adds a method or field under the name of its type, and under the last word of the
// name, as examples call their variables.
func (n codeNames) addMember(of, name string) {
	n.add(of, name)
	n.add(strings.ToLower(of[max(0, strings.LastIndexFunc(of, unicode.IsUpper)):]), name)
}

func (n codeNames) addType(s *ast.TypeSpec) {
	var fields *ast.FieldList
	switch t := s.Type.(type) {
	case *ast.StructType:
		fields = t.Fields
	case *ast.InterfaceType:
		fields = t.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, id := range f.Names {
			n.addMember(s.Name.Name, id.Name)
		}
	}
}

func (n codeNames) addDecl(pkg string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			n.add(pkg, d.Name.Name)
			return
		}
		n.addMember(receiver(d.Recv.List[0].Type), d.Name.Name)
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				n.add(pkg, s.Name.Name)
				n.addType(s)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					n.add(pkg, id.Name)
				}
			}
		}
	}
}

var codeName = regexp.MustCompile("`((\\w+)\\.([A-Za-z]\\w*))(?:\\.([A-Z]\\w*))?[^`/\\s]*`")

// foreign are names of the standard library, and names in the instructions for a change.
var foreign = []string{"exec.Cmd", "arcp.JobPin", "job.pin"}

func TestDocumentsNameWhatExists(t *testing.T) {
	known := make(codeNames)
	sources(t, func(_ string, f *ast.File) {
		for _, d := range f.Decls {
			known.addDecl(f.Name.Name, d)
		}
	})
	spec, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	var checked int
	documents(t, func(file, doc string) {
		if file == "CHANGELOG.md" || file == "SECURITY.md" || file == "SPEC.md" { // they name what is gone, or messages
			return
		}
		for _, c := range codeName.FindAllStringSubmatch(doc, -1) {
			full, of, name, member := c[1], c[2], c[3], c[4]
			if known[of] == nil || slices.Contains(foreign, full) || !ast.IsExported(name) && !isCode(file, full, spec) {
				continue
			}
			checked++
			if !known[of][name] || member != "" && known[name] != nil && !known[name][member] {
				t.Errorf("%s: %s does not exist", file, c[0])
			}
		}
	})
	if checked < 50 {
		t.Fatalf("only %d names looked at", checked)
	}
}

// isCode reports whether a name that is not exported is one of Go code, not a message, a setting
// or a file. Only the decisions have such names; codeDocuments have a test of their own.
func isCode(document, name string, spec []byte) bool {
	about := strings.HasPrefix(filepath.ToSlash(document), "docs/decisions/")
	return about && !bytes.Contains(spec, []byte(name)) && !slices.Contains([]string{".go", ".yaml"}, filepath.Ext(name))
}

// codeDocuments describe the code: every name of code, path and package in single back quotes exists.
var codeDocuments = []string{"docs/architecture.md", "CONTRIBUTING.md"}

// notInTree has the words in back quotes of codeDocuments that are not in the tree, with the reasons.
var notInTree = map[string]string{
	"job.pin":                 "the example of a new message type",
	"JobPin":                  "the example of a new message type",
	"JobPinPayload":           "the example of a new message type",
	"pinJob":                  "the example of a new message type",
	"engine/pin.go":           "the example of a new message type",
	"GROUP.NAME":              "the form of the id of a check",
	"store/NAME/NAME.go":      "a new store",
	"store/NAME/NAME_test.go": "a new store",
	"jsonschema":              "the key of a struct tag",
}

var (
	quotedWord = regexp.MustCompile("`([\\w.][\\w./-]*)`")
	specName   = regexp.MustCompile("`([\\w.]+)\\W") // messages, codes and tools with their arguments
	fencedCode = regexp.MustCompile("(?s)```.*?```")
)

func TestCodeDocumentsNameWhatExists(t *testing.T) {
	words := treeWords(t)
	spec, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range specName.FindAllStringSubmatch(string(spec), -1) {
		words[m[1]] = true
	}
	excepted := make(map[string]bool)
	var checked int
	for _, file := range codeDocuments {
		doc, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range quotedWord.FindAllStringSubmatch(fencedCode.ReplaceAllString(string(doc), ""), -1) {
			checked++
			if notInTree[m[1]] != "" {
				excepted[m[1]] = true
			} else if !words[m[1]] {
				t.Errorf("%s: %s is neither a name, a path nor a package of this module", file, m[0])
			}
		}
	}
	for word := range notInTree {
		if words[word] || !excepted[word] {
			t.Errorf("notInTree has %s, which is in the tree or in no document", word)
		}
	}
	if checked < 200 {
		t.Fatalf("only %d words looked at", checked)
	}
}

// treeWords returns the names of the code, with and without the name of the package or type, the
// imported packages, and the paths of files and directories with all their suffixes.
func treeWords(t *testing.T) map[string]bool {
	t.Helper()
	words, known := make(map[string]bool), make(codeNames)
	for _, f := range allFiles(t) {
		for _, d := range f.syntax.Decls {
			known.addDecl(strings.TrimSuffix(f.syntax.Name.Name, "_test"), d)
		}
		for _, p := range imports(f.syntax) {
			words[p] = true
		}
	}
	for of, names := range known {
		for name := range names {
			words[name], words[of+"."+name] = true, true
		}
	}
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		for rest, more := filepath.ToSlash(file), true; more; _, rest, more = strings.Cut(rest, "/") {
			words[rest] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return words
}

// maxColumns is the width of prose in documents. Tables, code and generated text may be wider.
const maxColumns = 100

func TestProseIsNarrow(t *testing.T) {
	var checked int
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		doc, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		checked++
		var code, generated bool
		for i, line := range strings.Split(string(doc), "\n") {
			switch {
			case strings.HasPrefix(strings.TrimSpace(line), "```"):
				code = !code
			case strings.HasPrefix(line, "<!-- end"):
				generated = false
			case strings.HasPrefix(line, "<!-- "):
				generated = true
			}
			width := utf8.RuneCountInString(line)
			if width > maxColumns && !code && !generated && !strings.HasPrefix(strings.TrimSpace(line), "|") {
				t.Errorf("%s:%d has %d columns, at most %d are allowed", path, i+1, width, maxColumns)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if checked < 20 {
		t.Fatalf("only %d documents checked", checked)
	}
}

var (
	heading      = regexp.MustCompile(`(?m)^#+ (.*)$`)
	link         = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	notInAnchors = regexp.MustCompile(`[^\pL\pN_ -]`)
)

// anchorOf returns the anchor of a heading, as GitHub makes it.
func anchorOf(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// anchors returns the anchors of the headings of a document, as GitHub makes them.
func anchors(doc string) map[string]bool {
	anchors := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fencedCode.ReplaceAllString(doc, ""), -1) {
		anchors[anchorOf(m[1])] = true
	}
	return anchors
}

// documents calls fn with each document of the project.
func documents(t *testing.T, fn func(file, doc string)) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			doc, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			fn(file, string(doc))
		}
	}
}

// Links between documents lead to an existing file and heading.
func TestDocumentsLinkToWhatExists(t *testing.T) {
	var checked int
	documents(t, func(file, doc string) {
		for _, m := range link.FindAllStringSubmatch(fencedCode.ReplaceAllString(doc, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			checked++
			target, anchor, _ := strings.Cut(m[1], "#")
			path := file
			if target != "" {
				path = filepath.Join(filepath.Dir(file), target)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: link %s: %v", file, m[1], err)
			} else if to, err := os.ReadFile(path); anchor != "" && (err != nil || !anchors(string(to))[anchor]) {
				t.Errorf("%s: link %s: there is no such heading", file, m[1])
			}
		}
	})
	if checked < 50 {
		t.Fatalf("only %d links checked", checked)
	}
}

// SPEC.md describes how each type is answered that the catalog gives to workers.
func TestWorkerMessagesAreDescribed(t *testing.T) {
	spec, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(spec), "| from the worker |")
	table, _, ended := strings.Cut(table, "\n\n")
	if !found || !ended {
		t.Fatal("SPEC.md has no table of the messages from a worker")
	}
	var described strings.Builder
	for row := range strings.SplitSeq(table, "\n|") {
		first, _, _ := strings.Cut(row, " |")
		described.WriteString(first)
	}
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		root, _, _ := strings.Cut(string(s.Type), ".")
		got := strings.Contains(described.String(), "`"+string(s.Type)+"`") || strings.Contains(described.String(), "`"+root+".*`")
		if got != s.Worker {
			t.Errorf("the table describes %s as a message of a worker: %v, want %v", s.Type, got, s.Worker)
		}
	}
}

func TestArchitectureNamesEveryPackage(t *testing.T) {
	doc, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	packages := make(map[string]bool)
	sources(t, func(path string, _ *ast.File) {
		packages[filepath.ToSlash(filepath.Dir(path))] = true
	})
	named := regexp.MustCompile("`([\\w/]+)`").FindAllStringSubmatch(string(doc), -1)
	for dir := range packages {
		if !slices.ContainsFunc(named, func(m []string) bool { return dir == m[1] || strings.HasSuffix(dir, "/"+m[1]) }) {
			t.Errorf("docs/architecture.md does not name the package %s", dir)
		}
	}
	if len(packages) < 40 {
		t.Fatalf("only %d packages found", len(packages))
	}
}

// The contents of SPEC.md list each of its sections.
func TestSpecContents(t *testing.T) {
	spec, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| chapter | sections |\n|---|---|\n")
	var chapter string
	var sections []string
	end := func() {
		if chapter != "" {
			want.WriteString("| " + chapter + " | " + strings.Join(sections, ", ") + " |\n")
		}
		sections = nil
	}
	for _, m := range regexp.MustCompile(`(?m)^(##|###) (.*)$`).FindAllStringSubmatch(string(spec), -1) {
		link := "[" + m[2] + "](#" + anchorOf(m[2]) + ")"
		if m[1] == "##" {
			end()
			chapter = link
		} else {
			sections = append(sections, link)
		}
	}
	end()
	if !strings.Contains(string(spec), "\n\n"+want.String()+"\n") {
		t.Errorf("the contents of SPEC.md are not:\n%s", want.String())
	}
}

// Each message, tool and member that the index of SPEC.md names is described in a section of its row.
func TestSpecIndex(t *testing.T) {
	spec, err := os.ReadFile("SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]string) // texts by anchor
	for _, text := range regexp.MustCompile(`(?m)^###? `).Split(string(spec), -1)[1:] {
		head, body, _ := strings.Cut(text, "\n")
		sections[anchorOf(head)] = body
	}
	_, index, found := strings.Cut(string(spec), "\n| I want to … |")
	index, _, _ = strings.Cut(index, "\n\n")
	rows := strings.Split(index, "\n|")
	if !found || len(rows) < 20 {
		t.Fatalf("the index of SPEC.md has %d rows", len(rows))
	}
	for _, row := range rows[2:] {
		var text strings.Builder
		for _, m := range link.FindAllStringSubmatch(row, -1) {
			text.WriteString(sections[strings.TrimPrefix(m[1], "#")])
		}
		names := quotedWord.FindAllStringSubmatch(row, -1)
		for _, m := range names {
			if !strings.Contains(text.String(), "`"+m[1]) {
				t.Errorf("the index of SPEC.md links no section that describes %s:%s", m[0], row)
			}
		}
		if len(names) == 0 {
			t.Errorf("the index of SPEC.md names no message:%s", row)
		}
	}
}
