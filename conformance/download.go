package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"

	"github.com/arcpd/arcpd/conformance/script"
)

// Bounds of the body of an answer to a request for a link, in bytes.
const (
	maxDownload = 64 << 20
	maxRefusal  = 1 << 10 // of a refusal, which the check compares
)

// downloaded is the answer to a request for a link to an artifact.
type downloaded struct {
	Status  int               `json:"status"`
	Size    int64             `json:"size"`    // of the body
	SHA256  string            `json:"sha256"`  // of the body, in hexadecimal
	Body    string            `json:"body"`    // only of a refusal
	Headers map[string]string `json:"headers"` // by the canonical name
}

// download requests a link without credentials. args[0] is the link, and args[1], if present, the method.
func (h host) download(args []script.Value) (script.Value, error) {
	method := http.MethodGet
	if len(args) > 1 {
		method = text(args[1])
	}
	req, err := http.NewRequestWithContext(h.t.ctx, method, text(args[0]), nil)
	if err != nil {
		return nil, fmt.Errorf("redirect_uri is a URL: %w", err)
	}
	client := http.Client{
		Transport:     h.t.target.linkTransport(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the link can be requested: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDownload))
	if err != nil {
		return nil, fmt.Errorf("the link is answered to the end: %w", err)
	}
	sum := sha256.Sum256(body)
	d := downloaded{Status: resp.StatusCode, Size: int64(len(body)), SHA256: hex.EncodeToString(sum[:]), Headers: map[string]string{}}
	if resp.StatusCode != http.StatusOK {
		d.Body = string(body[:min(len(body), maxRefusal)])
	}
	for name := range resp.Header {
		d.Headers[name] = resp.Header.Get(name)
	}
	return value(d), nil
}
