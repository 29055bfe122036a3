package client_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

const (
	largeSize = 4<<20 + 1
	partSize  = 256 << 10
)

// largeContent is more than a message may have.
var largeContent = bytes.Repeat([]byte("0123456789abcdef"), largeSize/16+1)[:largeSize]

// largeObject has the members of the description of largeContent.
func largeObject() string {
	sum := sha256.Sum256(largeContent)
	return fmt.Sprintf(`"artifact_id":"art_1","uri":"u","media_type":"text/plain","size":%d,"sha256":"%s"`, largeSize, hex.EncodeToString(sum[:]))
}

// firstPart is the script of a runtime that issues links, up to the answer to artifact.get.
func firstPart() string {
	return `
		C call: tool.invoke
		S: job.accepted corr=call job=job_1 seq=1 {"job_id":"job_1"}
		S: job.completed corr=call job=job_1 seq=2 {"value":{` + largeObject() + `,"offset":0,"more":true,"data":"` +
		base64.StdEncoding.EncodeToString(largeContent[:partSize]) + `"}}
		C link: artifact.fetch {"artifact_id":"art_1"}
	`
}

// withLink is the answer with a link.
func withLink(uri string) string {
	return `S: artifact.ref corr=link {"artifact":{` + largeObject() + `},` + largeObject() + `,"redirect_uri":"` + uri + "\"}\n"
}

// serveParts answers artifact.fetch of parts of largeContent until the connection ends, and sends the least offset.
func (f *fake) serveParts(least chan<- int) {
	first := largeSize
	for {
		env, err := f.read()
		if err != nil {
			least <- first
			return
		}
		p, err := arcp.DecodePayload[arcp.ArtifactFetchPayload](&env)
		if err != nil || env.Type != arcp.ArtifactFetch || p.Length != partSize {
			f.t.Errorf("got %s %s, %v; want artifact.fetch of a part", env.Type, env.Payload, err)
			continue
		}
		first = min(first, int(p.Offset))
		data := largeContent[p.Offset:min(int(p.Offset)+partSize, largeSize)]
		answer := arcp.Frame(arcp.ArtifactPut, arcp.ArtifactPutPayload{MediaType: "text/plain", Size: largeSize, Data: base64.StdEncoding.EncodeToString(data)})
		answer.ARCP, answer.ID, answer.Timestamp, answer.SessionID, answer.CorrelationID = arcp.Version, arcp.NewMessageID(), time.Now(), "sess_1", env.ID
		if err := f.write(answer.Append(nil)); err != nil {
			f.t.Error(err)
		}
	}
}

// openedWithLinks is opened for a runtime that issues links.
var openedWithLinks = strings.Replace(opened, `"capabilities":{}`, `"capabilities":{"artifact_redirect":true}`, 1)

// redirecting are options of a client that reads from links.
var redirecting = client.Options{Auth: bearer.Auth, ArtifactRedirect: true}

// redirected runs a script like scripted, and then serves parts. It returns the least offset of a part.
func redirected(t *testing.T, opts client.Options, script string, test func(t *testing.T, c *client.Client)) (least int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		conn, f := start(t, script+"hang")
		offset := make(chan int, 1)
		go func() {
			<-f.donec
			f.serveParts(offset)
		}()
		c, err := client.New(t.Context(), conn, opts)
		if err != nil {
			t.Fatal(err)
		}
		test(t, c)
		c.Abort()
		f.conn.Abort()
		least = <-offset
	})
	return least
}

// testDownload reads largeContent from a runtime with a script, and returns the least offset of a part.
func testDownload(t *testing.T, script string, check func(got []byte, err error)) (least int) {
	t.Helper()
	return redirected(t, redirecting, openedWithLinks+script, func(t *testing.T, c *client.Client) {
		r, err := c.Artifacts().Get(t.Context(), "art_1")
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got, err := io.ReadAll(r)
		check(got, err)
	})
}

func wantLarge(t *testing.T) func(got []byte, err error) {
	return func(got []byte, err error) {
		t.Helper()
		if err != nil || !bytes.Equal(got, largeContent) {
			t.Errorf("got %d bytes, %v; want %d", len(got), err, largeSize)
		}
	}
}

// serveLink serves a link, and counts its requests.
func serveLink(t *testing.T, handle http.HandlerFunc) (uri string, requests *atomic.Int32) {
	requests = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		for _, name := range []string{"Authorization", "Cookie", "Referer"} {
			if v := r.Header.Get(name); v != "" {
				t.Errorf("the request has %s: %q", name, v)
			}
		}
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL + "/artifacts/secret-of-the-link", requests
}

func sendLarge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(largeSize))
	_, _ = w.Write(largeContent)
}

func TestLargeArtifactIsReadFromItsLink(t *testing.T) {
	uri, requests := serveLink(t, sendLarge)
	want(t, "no part is requested", testDownload(t, firstPart()+withLink(uri), wantLarge(t)), largeSize)
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// What the link does not bring comes in parts.
func TestLinkThatFailsIsReplacedByParts(t *testing.T) {
	elsewhere, followed := serveLink(t, sendLarge)
	for name, handle := range map[string]http.HandlerFunc{
		"refused":        http.NotFound,
		"redirect":       func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, http.StatusFound) },
		"another length": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(largeContent[:5]) },
		"no answer":      func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			uri, _ := serveLink(t, handle)
			want(t, "offset", testDownload(t, firstPart()+withLink(uri), wantLarge(t)), partSize)
		})
	}
	if n := followed.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
	for name, answer := range map[string]string{
		"no link":      `S: nack corr=link {"code":"FAILED_PRECONDITION","message":"m","retryable":false}` + "\n",
		"a file":       withLink("file:///etc/passwd"),
		"no host":      withLink("/artifacts/x"),
		"other object": strings.ReplaceAll(withLink("http://127.0.0.1:1/x"), `"size":4194305`, `"size":5`),
		"nobody there": withLink("http://127.0.0.1:1/secret-of-the-link"),
	} {
		t.Run(name, func(t *testing.T) {
			want(t, "offset", testDownload(t, firstPart()+answer, wantLarge(t)), partSize)
		})
	}
}

// A download that breaks goes on in parts, from where it broke.
func TestBrokenDownloadGoesOnInParts(t *testing.T) {
	const sent = 1<<20 + 7
	uri, _ := serveLink(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(largeSize))
		_, _ = w.Write(largeContent[:sent])
		panic(http.ErrAbortHandler)
	})
	want(t, "offset", testDownload(t, firstPart()+withLink(uri), wantLarge(t)), sent)
}

// Content with another digest is found out.
func TestDownloadIsVerified(t *testing.T) {
	uri, _ := serveLink(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(largeSize))
		_, _ = w.Write(make([]byte, largeSize))
	})
	testDownload(t, firstPart()+withLink(uri), func(_ []byte, err error) { wantAs[*client.ProtocolError](t, "other content", err) })
}

// A log of the client does not have the link.
func TestLinksAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	opts := redirecting
	opts.Log = func(msg string, args ...any) { fmt.Fprintln(&log, msg, args) }
	redirected(t, opts, openedWithLinks+firstPart()+withLink("http://127.0.0.1:1/secret-of-the-link"), func(t *testing.T, c *client.Client) {
		r, err := c.Artifacts().Get(t.Context(), "art_1")
		if err != nil {
			t.Fatal(err)
		}
		want(t, "Close", r.Close(), nil)
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Error("a closed reader reads")
		}
	})
	if text := log.String(); !strings.Contains(text, "art_1") || strings.Contains(text, "secret") {
		t.Errorf("the log is %q", text)
	}
}

// A client requests no link if the runtime does not offer them.
func TestClientsDoNotAskForLinks(t *testing.T) {
	script := strings.ReplaceAll(firstPart(), "C link: artifact.fetch {\"artifact_id\":\"art_1\"}\n", "")
	redirected(t, redirecting, opened+script, func(t *testing.T, c *client.Client) {
		r, err := c.Artifacts().Get(t.Context(), "art_1")
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		wantLarge(t)(got, err)
	})
}

// Fetch of large content says what to do.
func TestFetchOfLargeContent(t *testing.T) {
	redirected(t, redirecting, openedWithLinks+`C link: artifact.fetch {"artifact_id":"art_1"}
		`+withLink("https://arcp.example/x"), func(t *testing.T, c *client.Client) {
		if _, err := c.Artifacts().Fetch(t.Context(), "art_1"); err == nil || !strings.Contains(err.Error(), "read it with Get") {
			t.Errorf("Fetch = %v", err)
		}
	})
}
