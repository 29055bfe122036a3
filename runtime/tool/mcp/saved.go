package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
	"github.com/arcpd/arcpd/internal/osfile"
)

// savedVersion is the version of the format of savedList. Another version is not read.
const savedVersion = 1

// maxSaved bounds the file of a saved list, in bytes. A longer list is not saved.
const maxSaved = 16 << 20

// savedList is the content of Config.ListFile: the last list of tools of a server.
type savedList struct {
	Version int         `json:"version"`
	Server  string      `json:"server"` // Config.server
	Tools   []savedTool `json:"tools"`
}

// savedTool is a definition. The schemas are texts, so that they keep the bytes of the server.
type savedTool struct {
	Name        string `json:"name"`
	Description string `json:"description,omitzero"`
	Input       string `json:"input,omitzero"`
	Output      string `json:"output,omitzero"`
	ReadOnly    bool   `json:"read_only,omitzero"`
	Idempotent  bool   `json:"idempotent,omitzero"`
}

// server returns a digest of the members that select the server. A list is valid for an equal digest.
func (c *Config) server() string {
	raw, err := arcp.Marshal([]any{c.Command, c.Env, c.Dir, c.URL, c.HeadersFile})
	if err != nil { // texts
		panic("mcp: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// save stores a list in Config.ListFile, unless it is there. A failure is logged: the tools are published, and
// only a start without the server needs the file.
func (s *Source) save(list []definition) {
	if s.cfg.ListFile == "" {
		return
	}
	saved := savedList{Version: savedVersion, Server: s.cfg.server(), Tools: make([]savedTool, 0, len(list))}
	for _, d := range list {
		saved.Tools = append(saved.Tools, savedTool{d.name, d.description, d.input, d.output, d.readOnly, d.idempotent})
	}
	raw, err := arcp.Marshal(saved)
	switch {
	case err == nil && sha256.Sum256(raw) == s.saved:
		return
	case err == nil && len(raw) > maxSaved:
		err = fmt.Errorf("it has more than %d bytes", maxSaved)
	case err == nil:
		if err = os.MkdirAll(filepath.Dir(s.cfg.ListFile), 0o700); err == nil {
			err = osfile.Replace(s.cfg.ListFile, raw)
		}
	}
	if err != nil {
		s.log.Warn().Str("error", clip.Ellipsis(err.Error(), maxFault)).
			Msg("the list of tools of an MCP server is not saved; a start without the server will not have the tools")
		return
	}
	s.saved = sha256.Sum256(raw)
}

// readSaved reads the list in Config.ListFile; nil: there is none of this server. A file that cannot be used is
// logged.
func (s *Source) readSaved() []definition {
	if s.cfg.ListFile == "" {
		return nil
	}
	saved, raw, err := readList(s.cfg.ListFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		s.log.Warn().Str("file", s.cfg.ListFile).Str("error", clip.Ellipsis(err.Error(), maxFault)).
			Msg("the saved list of tools of an MCP server cannot be read; the next list replaces it")
		return nil
	}
	if saved.Server != s.cfg.server() { // of the configuration before
		return nil
	}
	s.saved = sha256.Sum256(raw)
	list := make([]definition, 0, len(saved.Tools))
	for _, t := range saved.Tools {
		list = append(list, definition{t.Name, t.Description, t.Input, t.Output, t.ReadOnly, t.Idempotent})
	}
	return list
}

func readList(file string) (saved savedList, raw []byte, err error) {
	f, err := os.Open(file)
	if err != nil {
		return saved, nil, err
	}
	defer f.Close()
	raw, err = io.ReadAll(io.LimitReader(f, maxSaved+1))
	switch {
	case err != nil:
		return saved, nil, err
	case len(raw) > maxSaved:
		return saved, nil, fmt.Errorf("it has more than %d bytes", maxSaved)
	}
	if err := arcp.Unmarshal(raw, &saved); err != nil {
		return saved, nil, err
	}
	if saved.Version != savedVersion {
		return saved, nil, fmt.Errorf("its format has version %d, not %d", saved.Version, savedVersion)
	}
	return saved, raw, nil
}

// restore makes the tools of the saved list. It is called before run.
func (s *Source) restore() {
	list := s.readSaved()
	if len(list) > maxTools {
		list = list[:maxTools]
	}
	s.restored, _ = s.tools(list) // faults are logged
}

// publishRestored publishes the restored tools, unless the server has answered. Their jobs wait until it does.
func (s *Source) publishRestored() error {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if s.answered || len(s.restored) == 0 {
		return nil
	}
	s.log.Warn().Int("tools", len(s.restored)).
		Msg("an MCP server does not answer: the tools of its last list are published, and their jobs wait for it")
	_, err := s.publishFree(slices.Clone(s.restored), func(string, error) {}) // the list of the server reports names that are taken
	return err
}
