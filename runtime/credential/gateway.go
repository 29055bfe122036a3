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

// Gateway makes virtual keys at a server. It posts the request as JSON to the
// URL and reads the credentials. To revoke one it deletes URL/handle, where 404
// says that it is revoked already; when the answer was lost it deletes
// URL?job_id=…, whatever the job has. There 404 would say as well that the server
// cannot do that, so that it is not an answer: 2xx is, also if there was nothing.
type Gateway struct {
	url               *url.URL
	tokenFile         string
	endpoint, profile string
	client            *http.Client
}

// OpenGateway checks the URL, which is https or on this host, and that the token
// can be read. The file is read for each request, so that it may be replaced.
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

// onlyLoopback keeps the token on this host also when localhost resolves to
// another one.
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

// Issue asks once: a second time might make a second key.
func (g *Gateway) Issue(ctx context.Context, r Request) ([]Credential, error) {
	body, err := ask("", &r)
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

// statusError returns the error of Issue for an HTTP status. It is Refused for a client error
// and for a redirect: nothing was issued then.
func statusError(status int, header http.Header) error {
	cause := fmt.Errorf("status %d", status)
	told := func(e *arcp.Error) error { return fmt.Errorf("%w (%w)", e, cause) }
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return &Refused{told(arcp.Errorf(arcp.CodePermissionDenied, "the credential provisioner refused"))}
	case status == http.StatusTooManyRequests:
		return &Refused{told(arcp.Errorf(arcp.CodeResourceExhausted, "the credential provisioner is busy").RetryAfter(retryAfter(header)))}
	case status >= 500, status == http.StatusRequestTimeout:
		return told(arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner is not available"))
	case status >= 300:
		e := arcp.Errorf(arcp.CodeInternal, "the credential provisioner does not understand the request")
		e.Retryable = false
		return &Refused{told(e)}
	}
	return told(errAnswer)
}

const maxRetryAfter = time.Hour

// retryAfter reads the header of this name, in seconds from 1 to an hour.
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

// Revoke deletes. A key that is not there is revoked.
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
		return 0, nil, nil, unasked(err)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, unasked(errors.New("the URL is not usable"))
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

// unreachable is the error of a request without an answer. When there was no
// connection, nothing was issued.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	told := arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner is not available")
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return &Refused{fmt.Errorf("%w (cannot connect: %v)", told, op.Err)}
	}
	return fmt.Errorf("%w (no answer)", told)
}

// unasked is the error of a request that was not made.
func unasked(err error) error {
	return &Refused{fmt.Errorf("%w (%w)", arcp.Errorf(arcp.CodeUnavailable, "the credential provisioner is not available"), err)}
}
