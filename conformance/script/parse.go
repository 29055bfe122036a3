package script

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/arcpd/arcpd/arcp"
)

// Check is one check of a file. A check without steps is done elsewhere.
type Check struct {
	ID      string
	Title   string
	Level   string
	Section string
	Needs   []string
	Source  Source

	file  *File
	steps []*step
}

// Scripted reports whether the check has steps.
func (c *Check) Scripted() bool { return len(c.steps) > 0 }

// Sends returns the message types that the steps of the check send, with those of its macros. Types of house steps,
// and types in variables, are left out.
func (c *Check) Sends() []arcp.Type { return c.file.sends(c.steps, nil, 0) }

// sends adds the types that the steps send to list, each once.
func (f *File) sends(steps []*step, list []arcp.Type, depth int) []arcp.Type {
	for _, st := range steps {
		m := f.macro(st.verb)
		switch {
		case st.house || st.verb == houseVerb || depth > maxDepth:
			continue
		case st.verb == ">" && st.args[0].kind == constant:
			list = append(list, arcp.Type(plain(st.args[0].value)))
		case m != nil && st.conn != "":
			list = f.sends(m.steps, list, depth+1)
		case st.verb == "jobs":
			list = append(list, arcp.SessionListJobs)
		}
		list = f.sends(st.orElse, f.sends(st.body, list, depth), depth)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// File is one parsed file.
type File struct {
	Name   string // without directory and suffix
	Checks []*Check

	macros map[string]*macro
	common *File // macros of every file; may be nil

	level, section string
	needs          []string
	sets           map[string][]string
}

type macro struct {
	conn   string // parameter for the connection
	params []string
	steps  []*step
	source Source
}

// macro finds a macro by name.
func (f *File) macro(name string) *macro {
	if m := f.macros[name]; m != nil || f.common == nil {
		return m
	}
	return f.common.macro(name)
}

// step is one line of a script, with its block.
type step struct {
	at     string // file:line
	source string
	why    string
	house  bool // a rule of SPEC.md only
	verb   string
	conn   string
	names  []string // of new connections
	args   []*expr
	re     *expr // nil: the last message; wildcard: any
	as     string
	op     string
	by     *expr // role of new connections; nil: the ordinary client
	body   []*step
	orElse []*step
}

// ParseDir parses the files of a directory whose names end in .txt. The macros of
// common.txt, if it is there, are known to all of them.
func ParseDir(dir fs.FS, verbs func(name string) bool) (map[string]*File, error) {
	names, err := fs.Glob(dir, "*.txt")
	if err != nil {
		return nil, err
	}
	files := map[string]*File{}
	var common *File
	slices.SortFunc(names, func(a, b string) int { // common.txt is the first
		return strings.Compare(strings.Replace(a, "common.txt", "", 1), strings.Replace(b, "common.txt", "", 1))
	})
	for _, name := range names {
		data, err := fs.ReadFile(dir, name)
		if err != nil {
			return nil, err
		}
		f, err := Parse(name, string(data), common, verbs)
		if err != nil {
			return nil, err
		}
		if f.Name == "common" {
			common = f
		}
		files[f.Name] = f
	}
	return files, nil
}

// Parse reads one file. The function verbs knows the verbs of the host; nil: there
// are none.
func Parse(name, data string, common *File, verbs func(name string) bool) (*File, error) {
	p := &parser{name: name, verbs: verbs, file: &File{Name: strings.TrimSuffix(name, ".txt"), common: common,
		macros: map[string]*macro{}, sets: map[string][]string{}, level: "must"}}
	p.split(data)
	for p.next < len(p.lines) && p.err == nil {
		p.top()
	}
	if p.err == nil {
		p.link()
	}
	return p.file, p.err
}

// line is one logical line: text whose brackets are closed.
type line struct {
	number, indent int
	text, why      string
}

type parser struct {
	name  string
	file  *File
	verbs func(string) bool
	text  []string // the lines of the file
	lines []line
	next  int
	uses  []*step // of verbs and macros
	err   error   // the first one
}

func (p *parser) fail(number int, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s:%d: %s", p.name, number, fmt.Sprintf(format, args...))
	}
}

// split makes logical lines and leaves out empty ones and comments.
func (p *parser) split(data string) {
	var open *line // a line whose brackets are not closed
	p.text = strings.Split(data, "\n")
	for i, text := range p.text {
		trimmed := strings.TrimSpace(text)
		if open != nil {
			open.text += " " + trimmed
		} else if trimmed == "" || trimmed[0] == '#' {
			continue
		} else if n := len(p.lines); trimmed[0] == '{' && n > 0 { // an argument of the line before
			open = &p.lines[n-1]
			open.text += " " + trimmed
		} else {
			p.lines = append(p.lines, line{number: i + 1, indent: len(text) - len(strings.TrimLeft(text, " \t")), text: trimmed})
			open = &p.lines[len(p.lines)-1]
		}
		if strings.HasPrefix(open.text, "==") {
			open = nil
			continue
		}
		depth, end := balance(open.text)
		if depth > 0 {
			continue
		}
		if end < len(open.text) {
			open.text, open.why = strings.TrimSpace(open.text[:end]), strings.TrimSpace(open.text[end+len("-- "):])
		}
		open = nil
	}
	if open != nil {
		p.fail(open.number, "a bracket is not closed")
	}
}

// balance counts the brackets that are open at the end of a text, and finds where
// the text after -- begins.
func balance(s string) (depth, end int) {
	quote := byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote == '"' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '`':
			quote = c
		case strings.IndexByte("{[(", c) >= 0:
			depth++
		case strings.IndexByte("}])", c) >= 0:
			depth--
		case depth == 0 && strings.HasPrefix(s[i:], "-- ") && (i == 0 || s[i-1] == ' '):
			return 0, i
		}
	}
	return depth, len(s)
}

var header = regexp.MustCompile(`^== ([a-z0-9._-]+)(?: \(([^)]*)\))?: (.+)$`)

// top parses a line outside of a block: a header, a macro or a default.
func (p *parser) top() {
	l := p.lines[p.next]
	word, rest, _ := strings.Cut(l.text, " ")
	switch word {
	case "==":
		p.check(l)
		return
	case "def":
		names := strings.Fields(rest)
		if len(names) < 2 || p.file.macros[names[1]] != nil {
			p.fail(l.number, "want def CONNECTION NAME PARAMETER ..., and one macro of a name")
			return
		}
		p.next++
		m := &macro{conn: names[0], params: names[2:], steps: p.block(l.indent)}
		m.source = p.sourceFrom(names[1], l.number)
		p.file.macros[names[1]] = m
		return
	case "section":
		p.file.section = rest
	case "level":
		p.file.level = rest
	case "needs":
		p.file.needs = p.set(l.number, strings.Fields(rest))
	case "set":
		if names := strings.Fields(rest); len(names) > 0 {
			p.file.sets[names[0]] = p.set(l.number, names[1:])
		}
	default:
		p.fail(l.number, "%s stands outside of a check", word)
	}
	p.next++
}

// set replaces each @NAME by what the set holds.
func (p *parser) set(number int, names []string) (list []string) {
	for _, name := range names {
		if ref, ok := strings.CutPrefix(name, "@"); ok {
			if p.file.sets[ref] == nil {
				p.fail(number, "there is no set %s", ref)
			}
			list = append(list, p.file.sets[ref]...)
			continue
		}
		list = append(list, name)
	}
	return list
}

func (p *parser) check(l line) {
	parts := header.FindStringSubmatch(l.text)
	if parts == nil {
		p.fail(l.number, "want == ID (LEVEL, SECTION, needs NAME ...): TITLE")
		return
	}
	f := p.file
	c := &Check{ID: f.Name + "." + parts[1], Title: parts[3], Level: f.level, Section: f.section, Needs: f.needs, file: f}
	for item := range strings.SplitSeq(parts[2], ", ") {
		needs, ok := strings.CutPrefix(item, "needs")
		switch {
		case item == "":
		case ok:
			c.Needs = p.set(l.number, strings.Fields(needs))
		case strings.Contains(item, "§"):
			c.Section = item
		default:
			c.Level = item
		}
	}
	p.next++
	c.steps = p.block(-1)
	c.Source = p.sourceFrom(c.ID, l.number)
	f.Checks = append(f.Checks, c)
}

// block parses the lines that are indented more than indent, up to a header or
// what else stands outside of checks.
func (p *parser) block(indent int) (steps []*step) {
	own := -1
	for p.next < len(p.lines) && p.err == nil {
		l := p.lines[p.next]
		if l.indent <= indent || strings.HasPrefix(l.text, "== ") || strings.HasPrefix(l.text, "def ") {
			break
		}
		if own < 0 {
			own = l.indent
		}
		if l.indent != own {
			p.fail(l.number, "the indentation fits no block")
			return steps
		}
		p.next++
		if l.text == "else" {
			if len(steps) == 0 || steps[len(steps)-1].verb != "if" {
				p.fail(l.number, "else follows no if")
				return steps
			}
			steps[len(steps)-1].orElse = p.block(l.indent)
			continue
		}
		st := p.step(l)
		if p.err != nil {
			return steps
		}
		if slices.Contains(blocks, st.verb) {
			if st.body = p.block(l.indent); len(st.body) == 0 {
				p.fail(l.number, "%s has no block", st.verb)
			}
		}
		steps = append(steps, st)
	}
	return steps
}

// blocks are the steps that have a block.
var blocks = []string{"if", "for", "repeat", "until", houseVerb}

var onConn = regexp.MustCompile(`^(\$?[a-z][a-z0-9_]*)(>>|>|<<|<|!) (.+)$`)

// step parses one line.
func (p *parser) step(l line) *step {
	st := &step{at: fmt.Sprintf("%s:%d", p.name, l.number), source: l.text, why: l.why}
	source := l.text
	if rest, ok := strings.CutPrefix(source, houseVerb+" "); ok {
		st.house, source = true, strings.TrimSpace(rest)
	}
	s := &scanner{src: source}
	if m := onConn.FindStringSubmatch(source); m != nil {
		st.conn, st.verb, s.src = m[1], m[2], m[3]
		p.clauses(st, s)
		if most := map[string]int{">": 3, ">>": 1}[st.verb]; len(st.args) == 0 || most > 0 && len(st.args) > most || len(st.args) > 3 {
			s.fail("want a type, a payload and members of the envelope")
		}
	} else {
		p.statement(st, s)
	}
	if st.house && (st.verb == ">" || st.verb == ">>" || st.conn == "" && st.verb != "want") {
		s.fail("house stands before want, a step that receives, or a step of a connection: use a block house")
	}
	if s.err != nil {
		p.fail(l.number, "%v", s.err)
	}
	return st
}

// houseVerb begins a step, or a block of steps, that tests a rule of SPEC.md only.
const houseVerb = "house"

// statement parses a line that begins with a word.
func (p *parser) statement(st *step, s *scanner) {
	st.verb = s.word()
	switch st.verb {
	case "let":
		st.as = s.word()
		s.expect("=")
		st.args = []*expr{s.expr()}
	case "want", "if", "until":
		left := s.expr()
		st.op = s.operator()
		st.args = []*expr{left, s.expr()}
	case "for":
		pattern := s.expr()
		s.expect("in")
		st.args = []*expr{bind(pattern), s.expr()}
	case "repeat", "skip", "fail", "return":
		st.args = []*expr{s.expr()}
	case "break", "continue", "restart", houseVerb:
	case "open", "dial":
		st.names = s.names()
		p.clauses(st, s)
	default:
		st.conn = st.verb
		if st.verb = s.word(); st.verb == "" {
			s.fail("%s is no step", st.conn)
		}
		p.clauses(st, s)
		p.uses = append(p.uses, st)
	}
	s.end()
}

// serverName stands for the server in a step of the host.
const serverName = "server"

// bind makes the bare names of a pattern variables.
func bind(p *expr) *expr {
	if p.kind == constant {
		return &expr{kind: binding, text: plain(p.value)}
	}
	for i, a := range p.args {
		p.args[i] = bind(a)
	}
	return p
}

// clauses parses arguments, then re, by, offer and as.
func (p *parser) clauses(st *step, s *scanner) {
	for s.err == nil && !s.done() {
		switch {
		case s.keyword("re"):
			if st.re = s.expr(); st.re.kind == constant && plain(st.re.value) == "any" {
				st.re = &expr{kind: wildcard}
			}
		case s.keyword("as"):
			st.as = s.word()
		case s.keyword("by"):
			st.by = s.expr()
		case s.keyword("offer"):
			flags := &expr{kind: object}
			for s.err == nil && !s.done() && s.peek() != '{' {
				name := s.word()
				if name == "" {
					s.fail("want a feature before %q", s.src[s.pos:])
				}
				flags.keys = append(flags.keys, &expr{value: text(name)})
				flags.args = append(flags.args, &expr{value: Value("true")})
			}
			st.args = append(st.args, &expr{kind: object, keys: []*expr{{value: text("capabilities")}}, args: []*expr{flags}})
		default:
			st.args = append(st.args, s.expr())
		}
	}
}

// link looks up each verb.
func (p *parser) link() {
	for _, st := range p.uses {
		least, most := 0, 0
		hosted := p.verbs != nil && p.verbs(st.verb)
		if m := p.file.macro(st.verb); m != nil && st.conn != serverName {
			most = len(m.params)
		} else if v, ok := verbs[st.verb]; ok && st.conn != serverName {
			least, most = v.least, v.most
		} else if hosted {
			most = len(st.args)
		} else {
			p.err = fmt.Errorf("%s: %s is no step: %s", st.at, st.verb, st.source)
			return
		}
		if n := len(st.args); n < least || n > most {
			p.err = fmt.Errorf("%s: %s has %d arguments, want %d to %d", st.at, st.verb, n, least, most)
			return
		}
	}
}

// scanner reads values from one logical line.
type scanner struct {
	src   string
	pos   int
	depth int
	err   error
}

// maxNesting bounds how deep values nest.
const maxNesting = 100

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf(format, args...)
	}
}

func (s *scanner) space() {
	for s.pos < len(s.src) && (s.src[s.pos] == ' ' || s.src[s.pos] == '\t') {
		s.pos++
	}
}

func (s *scanner) done() bool { s.space(); return s.pos >= len(s.src) }

func (s *scanner) end() {
	if s.err == nil && !s.done() {
		s.fail("unexpected %q", s.src[s.pos:])
	}
}

func (s *scanner) peek() byte {
	if s.done() {
		return 0
	}
	return s.src[s.pos]
}

func inWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.-@/*§$", r)
}

// word reads a bare word; "" if there is none.
func (s *scanner) word() string {
	s.space()
	rest := s.src[s.pos:]
	n := strings.IndexFunc(rest, func(r rune) bool { return !inWord(r) })
	if n < 0 {
		n = len(rest)
	}
	s.pos += n
	return rest[:n]
}

// name reads the name behind a sign.
func (s *scanner) name() string {
	s.pos++
	name := s.word()
	if name == "" {
		s.fail("want a name before %q", s.src[s.pos:])
	}
	return name
}

// names reads names between commas.
func (s *scanner) names() (list []string) {
	for s.err == nil {
		name := s.word()
		if name == "" {
			s.fail("want a name")
		}
		list = append(list, name)
		if s.peek() != ',' {
			break
		}
		s.pos++
	}
	return list
}

func (s *scanner) keyword(word string) bool {
	s.space()
	rest, ok := strings.CutPrefix(s.src[s.pos:], word)
	if !ok || rest != "" && rest[0] != ' ' {
		return false
	}
	s.pos += len(word)
	return true
}

func (s *scanner) expect(word string) {
	s.space()
	if !strings.HasPrefix(s.src[s.pos:], word) {
		s.fail("want %s before %q", word, s.src[s.pos:])
		return
	}
	s.pos += len(word)
}

// comparisons, the longer ones first.
var comparisons = []string{"===", "==", "!=", "<=", ">=", "!~", "<", ">", "~"}

func (s *scanner) operator() string {
	s.space()
	for _, op := range comparisons {
		if strings.HasPrefix(s.src[s.pos:], op+" ") {
			s.pos += len(op)
			return op
		}
	}
	s.fail("want a comparison before %q", s.src[s.pos:])
	return ""
}

// expr reads a value with its operators.
func (s *scanner) expr() *expr {
	e := s.operand()
	for s.err == nil && !s.done() {
		rest := s.src[s.pos:]
		if len(rest) < 2 || strings.IndexByte("+-*", rest[0]) < 0 || rest[1] != ' ' {
			break
		}
		s.pos++
		e = &expr{kind: operator, text: rest[:1], args: []*expr{e, s.operand()}}
	}
	return e
}

func (s *scanner) operand() *expr {
	if s.depth++; s.depth > maxNesting {
		s.fail("values nest too deep")
	}
	defer func() { s.depth-- }()
	if s.err != nil {
		return &expr{}
	}
	switch c := s.peek(); c {
	case '{':
		return s.object()
	case '[':
		s.pos++
		return &expr{kind: list, args: s.list(']')}
	case '(':
		s.pos++
		e := s.expr()
		s.expect(")")
		return e
	case '"', '`':
		return s.quoted()
	case '$':
		path := strings.Split(s.name(), ".")
		return &expr{kind: reference, text: path[0], path: path[1:]}
	case '?':
		return &expr{kind: binding, text: s.name()}
	case '~':
		s.pos++
		return &expr{kind: contains, args: []*expr{s.expr()}}
	case '<', '>', '!':
		for _, op := range comparisons {
			if strings.HasPrefix(s.src[s.pos:], op) {
				s.pos += len(op)
				return &expr{kind: bound, text: op, args: []*expr{s.expr()}}
			}
		}
	}
	return s.bare()
}

// bare reads a number, a literal, a function call or words between bars.
func (s *scanner) bare() *expr {
	word := s.word()
	if word == "" {
		s.fail("want a value before %q", s.src[s.pos:])
		return &expr{}
	}
	if s.pos < len(s.src) && s.src[s.pos] == '(' {
		s.pos++
		return &expr{kind: call, text: word, args: s.list(')')}
	}
	if s.pos < len(s.src) && s.src[s.pos] == '|' {
		e := &expr{kind: alternatives, text: word, args: []*expr{{value: text(word)}}}
		for s.pos < len(s.src) && s.src[s.pos] == '|' {
			s.pos++
			word = s.word()
			e.text, e.args = e.text+"|"+word, append(e.args, &expr{value: text(word)})
		}
		return e
	}
	switch word {
	case "_":
		return &expr{kind: wildcard}
	case "absent":
		return &expr{kind: missing}
	}
	if v := Value(word); v.IsValid() {
		return &expr{value: v}
	}
	return &expr{value: text(word)}
}

// list reads values up to the closing bracket.
func (s *scanner) list(end byte) (items []*expr) {
	for s.err == nil {
		if s.peek() == end {
			s.pos++
			return items
		}
		items = append(items, s.expr())
		if s.peek() == ',' {
			s.pos++
		} else if s.peek() != end {
			s.fail("want %c before %q", end, s.src[s.pos:])
		}
	}
	return items
}

func (s *scanner) object() *expr {
	e := &expr{kind: object}
	s.pos++
	for s.err == nil {
		if s.peek() == '}' {
			s.pos++
			return e
		}
		key := s.operand()
		s.expect(":")
		if key.kind == constant && key.value.Kind() != '"' { // a bare name that is a literal elsewhere
			key.value = text(string(key.value))
		}
		if !slices.Contains([]kind{constant, template, reference}, key.kind) {
			s.fail("want a name of a member")
		}
		e.keys, e.args = append(e.keys, key), append(e.args, s.expr())
		if s.peek() == ',' {
			s.pos++
		} else if s.peek() != '}' {
			s.fail("want } before %q", s.src[s.pos:])
		}
	}
	return e
}

var errQuote = errors.New("a quote is not closed")

// quoted reads a JSON string or exact JSON text.
func (s *scanner) quoted() *expr {
	quote, from := s.src[s.pos], s.pos
	for s.pos++; s.pos < len(s.src) && s.src[s.pos] != quote; s.pos++ {
		if quote == '"' && s.src[s.pos] == '\\' {
			s.pos++
		}
	}
	if s.pos >= len(s.src) {
		s.err = errQuote
		return &expr{}
	}
	s.pos++
	whole := s.src[from:s.pos]
	e := &expr{kind: exact, value: Value(whole[1 : len(whole)-1]), raw: true}
	if quote == '"' {
		e = &expr{value: Value(whole)}
		var content string
		if err := arcp.Unmarshal(e.value, &content); err != nil {
			s.fail("%s is no JSON string: %v", whole, err)
		}
	}
	if strings.Contains(whole, "${") {
		e.kind, e.text = template, plain(e.value)
		if e.raw {
			e.text = string(e.value)
		}
		for _, part := range strings.Split(e.text, "${")[1:] {
			if !strings.Contains(part, "}") {
				s.fail("${ is not closed in %s", whole)
			}
		}
	}
	return e
}
