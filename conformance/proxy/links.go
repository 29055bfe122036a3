package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// linkFaults are defects of links to artifacts.
var linkFaults = []Fault{
	{Defect: "a link to an artifact is missing in the answer", Checks: []string{"artifacts.redirect"}, House: true,
		newRewriter: editReceived(arcp.ArtifactRef, func(f frame) frame { return f.withPayload("redirect_uri", nil) })},
	{Defect: "a link to an artifact has an unknown token", Checks: []string{"artifacts.redirect"}, House: true,
		newRewriter: editReceived(arcp.ArtifactRef, func(f frame) frame {
			return f.withPayload("redirect_uri", f.stringMember("redirect_uri")+"A")
		})},
	{Defect: "the answer with a link has an event_seq", Checks: []string{"artifacts.redirect"}, House: true,
		newRewriter: editReceived(arcp.ArtifactRef, func(f frame) frame {
			if f.stringMember("redirect_uri") == "" {
				return f
			}
			return f.with("event_seq", 1)
		})},
	{Defect: "a large artifact is refused though links are offered", Checks: []string{"artifacts.redirect"}, House: true,
		newRewriter: editReceived(arcp.ArtifactRef, func(f frame) frame {
			if f.stringMember("redirect_uri") == "" {
				return f
			}
			return f.with("type", arcp.Nack).with("payload", arcp.ErrorPayload{Code: arcp.CodeFailedPrecondition, Message: "it is large"})
		})},
	{Defect: "the content behind a link is other content", Checks: []string{"artifacts.redirect"}, House: true, newRewriter: unchanged,
		newLinks: editLinks(func(resp *http.Response, body []byte) []byte {
			if len(body) > 0 {
				body[len(body)-1]++
			}
			return body
		})},
	{Defect: "the content behind a link has no digest", Checks: []string{"artifacts.redirect"}, House: true, newRewriter: unchanged,
		newLinks: editLinks(func(resp *http.Response, body []byte) []byte {
			resp.Header.Del("Repr-Digest")
			return body
		})},
	{Defect: "the content behind a link may be stored by a cache", Checks: []string{"artifacts.redirect"}, House: true, newRewriter: unchanged,
		newLinks: editLinks(func(resp *http.Response, body []byte) []byte {
			resp.Header.Set("Cache-Control", "public")
			return body
		})},
	{Defect: "a link can be used twice", Checks: []string{"artifacts.redirect-once"}, House: true, newRewriter: unchanged, newLinks: repeatLinks},
	{Defect: "HEAD uses a link", Checks: []string{"artifacts.redirect-once"}, House: true, newRewriter: unchanged, newLinks: useByHead},
	{Defect: "the answer to a used link says that it was used", Checks: []string{"artifacts.redirect-once"}, House: true, newRewriter: unchanged, newLinks: tellUsed},
	{Defect: "a link brings a released artifact", Checks: []string{"artifacts.redirect-released", "artifacts.released"}, House: true, newRewriter: dropSent(arcp.ArtifactRelease)},
	{Defect: "a session that does not list artifact_redirect is sent a link", Checks: []string{"artifacts.redirect-not-listed"}, House: true,
		newRewriter: editSent(arcp.SessionOpen, func(f frame) frame {
			return f.withPayload("capabilities", arcp.Capabilities{Flags: map[arcp.Feature]bool{arcp.FeatureArtifacts: true, arcp.FeatureArtifactRedirect: true}})
		})},
	{Defect: "a part of an artifact is answered with a link", Checks: []string{"artifacts.redirect-part"}, House: true,
		newRewriter: editSent(arcp.ArtifactFetch, func(f frame) frame { return f.withPayload("offset", nil).withPayload("length", nil) })},
}

// unchanged is a rewriter that changes nothing.
func unchanged() rewriter { return rewriter{} }

// roundTripper is a function that is an http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// Links adds the fault to the requests for links of one check.
func (f Fault) Links(base http.RoundTripper) http.RoundTripper {
	if f.newLinks == nil {
		return base
	}
	return f.newLinks(base)
}

// readBody reads the body of an answer, and replaces it by the same content.
func readBody(resp *http.Response) ([]byte, error) {
	body, err := io.ReadAll(resp.Body)
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return body, err
}

// editLinks returns transports that edit each answer of status 200 to a GET.
func editLinks(edit func(resp *http.Response, body []byte) []byte) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil || resp.StatusCode != http.StatusOK || req.Method != http.MethodGet {
				return resp, err
			}
			body, err := readBody(resp)
			if err != nil {
				return nil, err
			}
			resp.Body = io.NopCloser(bytes.NewReader(edit(resp, body)))
			return resp, nil
		})
	}
}

// repeatLinks returns a transport that answers the second GET of a link as the first.
func repeatLinks(base http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	known := map[string][]byte{}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		resp, err := base.RoundTrip(req)
		if err != nil || req.Method != http.MethodGet {
			return resp, err
		}
		body, err := readBody(resp)
		if err != nil {
			return nil, err
		}
		if first, ok := known[req.URL.String()]; ok {
			resp.StatusCode, resp.Body = http.StatusOK, io.NopCloser(bytes.NewReader(first))
			return resp, nil
		}
		known[req.URL.String()] = body
		return resp, nil
	})
}

// useByHead returns a transport that sends a GET after each HEAD.
func useByHead(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err != nil || req.Method != http.MethodHead {
			return resp, err
		}
		get := req.Clone(req.Context())
		get.Method = http.MethodGet
		used, err := base.RoundTrip(get)
		if err != nil {
			return nil, fmt.Errorf("use the link: %w", err)
		}
		_, err = readBody(used)
		return resp, err
	})
}

// tellUsed returns a transport that distinguishes used links from unknown links: it answers the second GET of a
// link with another status.
func tellUsed(base http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	used := map[string]bool{}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(req)
		if err != nil || req.Method != http.MethodGet {
			return resp, err
		}
		mu.Lock()
		defer mu.Unlock()
		if used[req.URL.String()] {
			resp.StatusCode = http.StatusGone
		}
		used[req.URL.String()] = true
		return resp, nil
	})
}
