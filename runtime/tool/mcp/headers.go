package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/internal/osfile"
)

// headers holds the lines of a headers file. They are secrets: errors and logs have only line numbers.
type headers struct {
	path string

	mu      sync.Mutex
	changed time.Time // modification time of the file; zero: not read yet
	size    int64
	values  http.Header
}

func newHeaders(path string) *headers { return &headers{path: path} }

// current returns the headers, and reads a changed file again. The caller must not change the result.
func (h *headers) current() (http.Header, error) {
	if h.path == "" {
		return nil, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	info, err := os.Stat(h.path)
	if err != nil {
		return nil, fmt.Errorf("headers_file: %w", err)
	}
	if info.ModTime().Equal(h.changed) && info.Size() == h.size {
		return h.values, nil
	}
	values, info, err := readHeaders(h.path)
	if err != nil {
		return nil, fmt.Errorf("headers_file %s: %w", h.path, err)
	}
	h.values, h.changed, h.size = values, info.ModTime(), info.Size()
	return values, nil
}

func readHeaders(path string) (http.Header, fs.FileInfo, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, errors.Unwrap(err)
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, nil, err
	case !info.Mode().IsRegular():
		return nil, nil, errors.New("it is not a regular file")
	case osfile.Shared(info):
		return nil, nil, fmt.Errorf("others may read or write it (mode %04o); chmod 600 it", info.Mode().Perm())
	case info.Size() > maxHeadersFile:
		return nil, nil, fmt.Errorf("it has more than %d bytes", maxHeadersFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxHeadersFile))
	if err != nil {
		return nil, nil, err
	}
	values, err := parseHeaders(data)
	return values, info, err
}

// parseHeaders reads lines "Name: value". It ignores empty lines and lines that begin with #.
func parseHeaders(data []byte) (http.Header, error) {
	h := make(http.Header)
	n := 0
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		n++
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) || !isValue(strings.TrimSpace(value)) {
			return nil, fmt.Errorf(`line %d: write "Name: value"`, n)
		}
		if isProtocolHeader(name) {
			return nil, fmt.Errorf("line %d: HTTP or MCP sets this header: remove it", n)
		}
		h.Add(name, strings.TrimSpace(value))
	}
	return h, nil
}

// isProtocolHeader reports whether HTTP or MCP sets a header.
func isProtocolHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return strings.HasPrefix(name, "Mcp-") || slices.Contains([]string{"Accept", "Connection", "Content-Length", "Content-Type", "Host",
		"Last-Event-Id", "Transfer-Encoding"}, name)
}

func isToken(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func isValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
