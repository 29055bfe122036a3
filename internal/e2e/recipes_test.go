package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// recipeTimeout bounds a line of a recipe.
const recipeTimeout = 2 * time.Minute

// recipeHost is a machine as docs/backup.md describes it, below a directory.
type recipeHost struct {
	t       *testing.T
	root    string
	doc     []byte
	server  *process
	admin   string
	rewrite *strings.Replacer
}

func newRecipeHost(t *testing.T, doc []byte) *recipeHost {
	t.Helper()
	root := t.TempDir()
	h := &recipeHost{t: t, root: root, doc: doc, rewrite: strings.NewReplacer(
		"/var/lib/private/", root+"/data/", "/etc/arcp/", root+"/etc/")}
	for _, dir := range []string{"data/arcp-backups", "bin", "etc", "system", "home"} {
		h.must(os.MkdirAll(filepath.Join(root, dir), 0o700))
	}
	program, err := os.ReadFile(binary(t))
	h.must(err)
	h.write("bin/arcp", string(program))
	h.write("home/arcp-new", string(program)+"new") // bytes after a program are ignored
	h.write("system/sudo", "#!/bin/sh\nexec \"$@\"\n")
	config, err := os.ReadFile("deploy/arcp.yaml")
	h.must(err)
	h.write("etc/arcp.yaml", string(config))
	h.start()
	return h
}

func (h *recipeHost) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *recipeHost) write(name, text string) {
	h.t.Helper()
	h.must(os.WriteFile(filepath.Join(h.root, name), []byte(text), 0o700))
}

func (h *recipeHost) start() {
	h.t.Helper()
	h.admin = freeAddr(h.t)
	h.server = startServer(h.t, filepath.Join(h.root, "bin/arcp"), filepath.Join(h.root, "data/arcp"), "--admin", h.admin)
}

func (h *recipeHost) stop() {
	h.t.Helper()
	stopServer(h.t, h.server)
}

// shell runs a line as the operator types it, and returns its output.
func (h *recipeHost) shell(line string) (string, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), recipeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = filepath.Join(h.root, "home")
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "ARCP_URL="+h.server.url, "ARCP_TOKEN="+crashToken,
		"PATH="+filepath.Join(h.root, "system")+":"+filepath.Join(h.root, "bin")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// submit runs a job to its end and returns its id.
func (h *recipeHost) submit() string {
	h.t.Helper()
	out, err := h.shell(`arcp invoke demo.echo '{}' --detach`)
	h.must(err)
	id := strings.TrimSpace(out)
	if out, err := h.shell("arcp jobs wait " + id); err != nil {
		h.t.Fatalf("job %s: %v\n%s", id, err, out)
	}
	return id
}

// wantJob checks whether the server has a job.
func (h *recipeHost) wantJob(why, id string, there bool) {
	h.t.Helper()
	out, err := h.shell("arcp jobs show " + id)
	if got := err == nil; got != there || !there && !strings.Contains(out, "NOT_FOUND") {
		h.t.Errorf("%s: arcp jobs show %s: %v\n%s\nwant the job there: %t", why, id, err, out, there)
	}
}

// follow runs the lines of the recipe after a heading. Arguments that differ on this machine are
// replaced or added.
func (h *recipeHost) follow(heading string, replace ...string) {
	h.t.Helper()
	text := h.rewrite.Replace(strings.NewReplacer(replace...).Replace(block(h.t, h.doc, heading, "sh")))
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "sudo systemctl stop arcp":
			h.stop()
			continue
		case line == "sudo systemctl start arcp":
			h.start()
			continue
		case line == "sudo systemctl restart arcp":
			h.stop()
			h.start()
			continue
		case strings.Contains(line, "systemctl"):
			h.t.Fatalf("%s: the test does not know %q", heading, line)
		case line == "arcp doctor", strings.HasPrefix(line, "sudo arcp backup /"):
			line += " --admin http://" + h.admin
		}
		if out, err := h.shell(line); err != nil {
			h.t.Fatalf("%s: %s: %v\n%s", heading, line, err, out)
		}
	}
}

// The recipes of docs/backup.md, typed line by line, restore, upgrade and roll back a server.
func TestRecipes(t *testing.T) {
	ofOtherPrograms(t)
	doc, err := os.ReadFile("docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	h := newRecipeHost(t, doc)
	backups := filepath.Join(h.root, "data/arcp-backups")
	isNew := func() bool {
		text, err := os.ReadFile(filepath.Join(h.root, "bin/arcp"))
		h.must(err)
		return strings.HasSuffix(string(text), "new")
	}

	copied := h.submit()
	out, err := h.shell("arcp backup " + backups + " --keep 7 --admin http://" + h.admin)
	if err != nil {
		t.Fatalf("backup: %v\n%s", err, out)
	}
	path, _, _ := strings.Cut(out, ": ")
	lost := h.submit()
	h.follow("## Restore", "20060102T150405Z", filepath.Base(path))
	h.wantJob("a job of the copy", copied, true)
	h.wantJob("a job after the copy", lost, false)

	before := h.submit()
	h.follow("## Upgrade")
	h.wantJob("a job before the upgrade", before, true)
	if !isNew() {
		t.Error("the new version is not installed")
	}
	after := h.submit()
	h.follow("## Rollback")
	h.wantJob("a job before the upgrade", before, true)
	h.wantJob("a job after the upgrade", after, false)
	if isNew() {
		t.Error("the previous version is not installed")
	}
	h.stop()
}
