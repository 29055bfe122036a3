package credential

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Gateway creates virtual keys at a server.
//
//   - Issue posts the request as JSON to the URL and reads the credentials.
//   - Revoke deletes URL/handle. The status 404 means that the key is revoked already.
//   - After a lost answer Revoke deletes URL?job_id=…, all keys of the job. Only 2xx confirms
//     that, because 404 may also mean that the server lacks this endpoint.
type Gateway struct {
	url               *url.URL
	tokenFile         string
	endpoint, profile string
	client            *http.Client
}

// OpenGateway checks the URL, which must use https or a loopback host, and reads the token
// once to validate it. Each request reads the file again, so that it may be replaced.
func OpenGateway(rawURL, tokenFile, endpoint, profile string) (*Gateway, error) {
	u, err := gatewayURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	g := &Gateway{url: u, tokenFile: tokenFile, endpoint: endpoint, profile: profile}
	if _, err := g.token(); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if u.Scheme == "http" {
		dialer.Control = onlyLoopback
	}
	g.client = &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: maxCalls, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: maxAnswer,
		},
		// The token and the answer are for the host that is configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return g, nil
}

// onlyLoopback refuses a connection to another host, for example when localhost resolves to
// one, so that the token stays on this host.
func onlyLoopback(_, address string, _ syscall.RawConn) error {
	if ap, err := netip.ParseAddrPort(address); err != nil || !ap.Addr().Unmap().IsLoopback() {
		return errors.New("http is for this host only")
	}
	return nil
}

func (g *Gateway) token() (Secret, error) {
	data, err := readPrivate(g.tokenFile)
	if err != nil {
		return "", fmt.Errorf("token_file: %w", err)
	}
	t := string(bytes.TrimSpace(data))
	if t == "" || !token(t) {
		return "", errors.New("token_file: want one token and nothing else")
	}
	return Secret(t), nil
}

// Issue posts the request once: a retry could create a second key.
func (g *Gateway) Issue(ctx context.Context, r Request) ([]Credential, error) {
	body, err := encodeRequest("", &r)
	if err != nil {
		return nil, refuse(arcp.Errorf(arcp.CodeInternal, "the credential request cannot be encoded"))
	}
	status, header, answer, err := g.do(ctx, http.MethodPost, g.url, body, idempotencyKey(&r))
	if err != nil {
		return nil, err
	}
	if status == http.StatusOK || status == http.StatusCreated {
		return readAnswer(answer, &r, g.endpoint, g.profile)
	}
	return nil, statusError(status, header)
}

func idempotencyKey(r *Request) string {
	if r.Generation <= 1 {
		return string(r.Job)
	}
	return string(r.Job) + "/" + strconv.Itoa(r.Generation)
}

// statusError returns the error of Issue for an HTTP status. It is a RefusedError for a client error
// and for a redirect: nothing was issued then.
func statusError(status int, header http.Header) error {
	cause := fmt.Errorf("status %d", status)
	told := func(e *arcp.Error) error { return fmt.Errorf("%w (%w)", e, cause) }
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return &RefusedError{told(arcp.Errorf(arcp.CodePermissionDenied, "the credential provisioner refused"))}
	case status == http.StatusTooManyRequests:
		return &RefusedError{told(arcp.Errorf(arcp.CodeResourceExhausted, "the credential provisioner is busy").RetryAfter(retryAfter(header)))}
	case status >= 500, status == http.StatusRequestTimeout:
		return told(arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner is not available"))
	case status >= 300:
		e := arcp.Errorf(arcp.CodeInternal, "the credential provisioner does not understand the request")
		e.Retryable = false
		return &RefusedError{told(e)}
	}
	return told(errAnswer)
}

const maxRetryAfter = time.Hour

// retryAfter returns the Retry-After header in seconds, bounded to 1 second to 1 hour.
func retryAfter(header http.Header) int {
	text := header.Get("Retry-After")
	d := time.Second
	if n, err := strconv.Atoi(text); err == nil && n > 0 {
		d = time.Duration(min(n, int(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		d = time.Until(at)
	}
	return int(min(max(d, time.Second), maxRetryAfter) / time.Second)
}

// Revoke deletes the key of ref. Deleting an unknown key succeeds.
func (g *Gateway) Revoke(ctx context.Context, ref Ref) error {
	u := *g.url
	if ref.Upstream == "" {
		u.RawQuery = url.Values{"job_id": {string(ref.Job)}}.Encode()
	} else {
		segment := url.PathEscape(ref.Upstream)
		if ref.Upstream == "." || ref.Upstream == ".." {
			return errors.New("the handle is not a name")
		}
		u.RawPath = u.EscapedPath() + "/" + segment
		u.Path += "/" + ref.Upstream
	}
	status, _, _, err := g.do(ctx, http.MethodDelete, &u, nil, "")
	switch {
	case err != nil:
		return err
	case status >= 200 && status < 300, status == http.StatusGone, status == http.StatusNotFound && ref.Upstream != "":
		return nil
	}
	return fmt.Errorf("revoke: status %d", status)
}

// do makes one request. Its errors contain neither the token nor the response.
func (g *Gateway) do(ctx context.Context, method string, u *url.URL, body []byte, key string) (status int, header http.Header, answer []byte, err error) {
	t, err := g.token()
	if err != nil {
		return 0, nil, nil, notSent(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, notSent(errors.New("the URL is not usable"))
	}
	req.Header.Set("Authorization", "Bearer "+t.Reveal())
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := g.client.Do(req)
	if err != nil {
		return 0, nil, nil, unreachable(ctx, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, nil, nil, unreachable(ctx, err)
	case len(answer) > maxAnswer:
		return resp.StatusCode, resp.Header, nil, fmt.Errorf("%w: it is longer than %d bytes", errAnswer, maxAnswer)
	}
	return resp.StatusCode, resp.Header, answer, nil
}

// unreachable returns the error of a request without an answer. It is a RefusedError if no connection
// was made.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	told := arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner is not available")
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return &RefusedError{fmt.Errorf("%w (cannot connect: %v)", told, op.Err)}
	}
	return fmt.Errorf("%w (no answer)", told)
}

// notSent returns the error of a request that was not sent.
func notSent(err error) error {
	return &RefusedError{fmt.Errorf("%w (%w)", arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner is not available"), err)}
}
