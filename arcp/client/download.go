package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// linkTimeout bounds the time of each step of a download: to connect, to the header of the answer, and
// between two parts of the content.
const linkTimeout = 30 * time.Second

// download reads the content of an artifact from a link. One goroutine uses it.
type download struct {
	body  io.ReadCloser
	end   context.CancelFunc // ends the request
	stall *time.Timer        // calls end
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	d.stall.Reset(linkTimeout)
	n, err := d.body.Read(p)
	if !d.stall.Stop() {
		err = fmt.Errorf("no content for %v", linkTimeout)
	}
	return n, err
}

func (d *download) close() {
	d.stall.Stop()
	d.end()
	_ = d.body.Close() // what was read is verified
}

// download requests the content of an artifact over HTTP. No error contains the link.
func (a Artifacts) download(ctx context.Context, o *arcp.ArtifactObject) (*download, error) {
	got, err := a.c.request(ctx, arcp.Frame(arcp.ArtifactFetch, arcp.ArtifactFetchPayload{ArtifactID: o.ArtifactID}), arcp.ArtifactRef, nil)
	if err != nil {
		return nil, err
	}
	ref, err := arcp.DecodePayload[arcp.ArtifactRefPayload](&got)
	switch {
	case err != nil:
		return nil, &ProtocolError{string(got.Type), err}
	case ref.Artifact.ArtifactID != o.ArtifactID || ref.Artifact.Size != o.Size || !strings.EqualFold(ref.Artifact.SHA256, o.SHA256):
		return nil, &ProtocolError{string(got.Type), errors.New("the link is to other content")}
	}
	u, err := url.Parse(ref.RedirectURI)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return nil, &ProtocolError{string(got.Type), errors.New("redirect_uri is not a URL with https or http")}
	}
	return openLink(ctx, linkClient(a.c.opts.Network.TLS), u, o.Size)
}

// linkClient returns a client that sends no credentials and follows no redirect.
func linkClient(config *tls.Config) *http.Client {
	if config != nil { // of the WebSocket, which may be of another host
		config = config.Clone()
		config.ServerName, config.Certificates, config.GetClientCertificate, config.NextProtos = "", nil, nil, nil
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: linkTimeout}).DialContext,
			TLSClientConfig:       config,
			TLSHandshakeTimeout:   linkTimeout,
			ResponseHeaderTimeout: linkTimeout,
			DisableKeepAlives:     true,
			DisableCompression:    true,
		},
	}
}

// openLink requests the content of a link, which must have a size.
func openLink(ctx context.Context, client *http.Client, u *url.URL, size uint64) (*download, error) {
	ctx, end := context.WithCancel(ctx)
	req := (&http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}).WithContext(ctx)
	resp, err := client.Do(req)
	if err != nil {
		end()
		if failed, ok := errors.AsType[*url.Error](err); ok { // its text has the link
			err = failed.Err
		}
		return nil, err
	}
	d := &download{body: resp.Body, end: end, stall: time.AfterFunc(linkTimeout, end)}
	d.stall.Stop() // until Read
	switch {
	case resp.StatusCode != http.StatusOK:
		err = fmt.Errorf("the link is answered with status %d", resp.StatusCode)
	case uint64(resp.ContentLength) != size:
		err = fmt.Errorf("the link has %d bytes, want %d", resp.ContentLength, size)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}
