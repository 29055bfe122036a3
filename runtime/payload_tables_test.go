package runtime_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// payloadTables renders the members of the payloads of a section of SPEC.md from the structs of
// package arcp and their comments. An object is described where it is used first.
type payloadTables struct {
	t         *testing.T
	structs   map[string]payloadStruct
	described map[string]bool
}

type payloadStruct struct {
	doc     string // without the name
	members []member
}

type member struct {
	name, meaning string
	typ           ast.Expr
	optional      bool
	embedded      string // the struct whose members are members of this one
}

func newPayloadTables(t *testing.T) *payloadTables {
	p := &payloadTables{t: t, structs: make(map[string]payloadStruct), described: make(map[string]bool)}
	files, err := filepath.Glob("../arcp/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("sources of arcp: %v, %v", files, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		f, err := parser.ParseFile(gotoken.NewFileSet(), file, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == gotoken.TYPE {
				p.addStructs(g)
			}
		}
	}
	return p
}

func (p *payloadTables) addStructs(g *ast.GenDecl) {
	for _, s := range g.Specs {
		ts := s.(*ast.TypeSpec)
		st, ok := ts.Type.(*ast.StructType)
		if !ok {
			continue
		}
		_, doc, _ := strings.Cut(strings.Join(strings.Fields(g.Doc.Text()), " "), " ")
		out := payloadStruct{doc: doc}
		for _, f := range st.Fields.List {
			if len(f.Names) == 0 {
				if id, ok := f.Type.(*ast.Ident); ok {
					out.members = append(out.members, member{embedded: id.Name})
				}
				continue
			}
			if f.Tag == nil {
				continue
			}
			name, options, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
			meaning := strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
			out.members = append(out.members, member{name: name, meaning: meaning, typ: f.Type, optional: strings.Contains(options, "omit")})
		}
		p.structs[ts.Name.Name] = out
	}
}

// results are the results of built-in tools by the section of SPEC.md that describes them.
var results = map[string][]string{
	"§7.3":  {"JobView", "SessionView", "CredentialView"},
	"§7.4":  {"QuestionView", "OutcomeView"},
	"§7.5":  {"ToolEntry", "ToolView"},
	"§7.6":  {"ResourceLeaseView", "ReapReport"},
	"§7.10": {"UploadProgress", "ArtifactChunk", "ArtifactReleased"},
}

// section renders the payloads of the message types of a section, and its results.
func (p *payloadTables) section(section string) string {
	var out strings.Builder
	for _, name := range results[section] {
		p.describe(&out, "Object `"+name+"`", name)
	}
	var done []string
	for i := range arcp.Catalog {
		name := arcp.Catalog[i].PayloadName()
		if arcp.Catalog[i].Section != section || slices.Contains(done, name) {
			continue
		}
		done = append(done, name)
		var types []string
		for j := range arcp.Catalog {
			if s := &arcp.Catalog[j]; s.PayloadName() == name && s.Section == section {
				types = append(types, "`"+string(s.Type)+"`")
			}
		}
		if name == "Error" {
			fmt.Fprintf(&out, "**%s** carries an error (§4).\n\n", strings.Join(types, ", "))
			continue
		}
		p.describe(&out, strings.Join(types, ", "), name)
	}
	return strings.TrimSpace(out.String()) + "\n"
}

func (p *payloadTables) describe(out *strings.Builder, title, name string) {
	s, ok := p.structs[name]
	if !ok {
		p.t.Fatalf("no struct %s in arcp", name)
	}
	p.described[name] = true
	fmt.Fprintf(out, "**%s** %s\n\n", title, s.doc)
	var objects []string
	if rows := p.rows(name, &objects); rows != "" {
		out.WriteString("| member | type | required | meaning |\n| --- | --- | --- | --- |\n" + rows + "\n")
	}
	for _, o := range objects {
		if !p.described[o] {
			p.describe(out, "Object `"+o+"`", o)
		}
	}
}

// rows renders the members of a struct, and collects the objects that they refer to.
func (p *payloadTables) rows(name string, objects *[]string) string {
	var out strings.Builder
	for _, m := range p.structs[name].members {
		if m.embedded != "" {
			out.WriteString(p.rows(m.embedded, objects))
			continue
		}
		if m.name == "" || m.name == "-" {
			continue
		}
		if m.meaning == "" {
			p.t.Errorf("member %s of arcp.%s has no comment", m.name, name)
		}
		required := "yes"
		if m.optional {
			required = "–"
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", m.name, p.typeName(m.typ, objects), required, strings.ReplaceAll(m.meaning, "|", "\\|"))
	}
	return out.String()
}

// typeName returns the JSON type of a Go type.
func (p *payloadTables) typeName(e ast.Expr, objects *[]string) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return p.typeName(e.X, objects)
	case *ast.ArrayType:
		if id, ok := e.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return "string"
		}
		return "array of " + p.typeName(e.Elt, objects)
	case *ast.MapType:
		return "object of " + p.typeName(e.Value, objects)
	case *ast.SelectorExpr: // time.Time
		return "time"
	case *ast.Ident:
		switch e.Name {
		case "Raw":
			return "any"
		case "bool":
			return "boolean"
		case "float64", "Number":
			return "number"
		case "Capabilities":
			return "object (§3.10)"
		case "Type":
			return "message type"
		case "Code":
			return "error code (§4)"
		}
		if strings.HasPrefix(e.Name, "int") || strings.HasPrefix(e.Name, "uint") {
			return "integer"
		}
		if _, ok := p.structs[e.Name]; ok {
			if !slices.Contains(*objects, e.Name) {
				*objects = append(*objects, e.Name)
			}
			return "`" + e.Name + "`"
		}
	}
	return "string"
}

var payloadBlock = regexp.MustCompile(`(?s)<!-- payloads: (§[0-9.]+) -->\n.*?<!-- end payloads -->`)

// updatePayloads writes the tables of payloads into a document. Each section of a message
// type must have one.
func updatePayloads(t *testing.T, doc []byte) []byte {
	p, found := newPayloadTables(t), make(map[string]bool)
	doc = payloadBlock.ReplaceAllFunc(doc, func(block []byte) []byte {
		section := string(payloadBlock.FindSubmatch(block)[1])
		found[section] = true
		return fmt.Appendf(nil, "<!-- payloads: %s -->\n%s<!-- end payloads -->", section, p.section(section))
	})
	for i := range arcp.Catalog {
		if s := arcp.Catalog[i].Section; !found[s] {
			t.Errorf("SPEC.md has no payloads of %s", s)
			found[s] = true
		}
	}
	return doc
}
