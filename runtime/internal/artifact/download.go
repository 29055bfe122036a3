package artifact

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

const (
	downloadChunk = 64 << 10 // bytes of content in memory for each download

	// chunkTimeout bounds the time until the connection has accepted a chunk. A client that reads more
	// slowly is disconnected.
	chunkTimeout = 30 * time.Second
)

// ServeHTTP serves the links. The last element of the path is the token. A GET uses the link, and a HEAD
// does not. The answer to a refused request does not depend on the token.
func (l *Links) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// A connection that is kept alive has the deadline of its last download.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(chunkTimeout)) // fails without deadlines
	token := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	if origin := r.Header.Get("Origin"); origin != "" { // an allowed one: a page reads with its own link
		h.Set("Access-Control-Allow-Origin", origin)
		h.Set("Vary", "Origin")
	}
	switch r.Method {
	case http.MethodHead:
		l.describe(w, token)
	case http.MethodGet:
		l.opts.Count(l.download(w, token))
	default:
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "a link to an artifact is read with GET", http.StatusMethodNotAllowed)
	}
}

// describe answers a HEAD.
func (l *Links) describe(w http.ResponseWriter, token string) {
	t, ok := l.find(token)
	if ok {
		row, err := l.get(&t)
		if err == nil {
			describeContent(w.Header(), &row)
			return
		}
	}
	refuseLink(w)
	l.opts.Count(LinkRefused)
}

// get returns the row of the artifact of a link, if its principal may still read it.
func (l *Links) get(t *LinkTarget) (Row, error) {
	if err := t.Allowed(); err != nil {
		return Row{}, err
	}
	return l.opts.Store.Get(t.Principal, t.Artifact)
}

// refuseLink answers a request without a valid link. The answer does not depend on the reason.
func refuseLink(w http.ResponseWriter) {
	http.Error(w, "this link is not valid: it is unknown, used or expired; request another with artifact.fetch", http.StatusNotFound)
}

// download answers a GET, and returns the result of the link.
func (l *Links) download(w http.ResponseWriter, token string) (result string) {
	t, done, ok := l.use(token)
	if !ok {
		refuseLink(w)
		return LinkRefused
	}
	defer done()
	if t.Allowed() != nil {
		refuseLink(w)
		return LinkRefused
	}
	row, content, err := l.opts.Store.Open(t.Principal, t.Artifact)
	if e, isRefusal := arcp.AsError(err); isRefusal && e.Code == arcp.CodeNotFound {
		refuseLink(w)
		return LinkRefused
	}
	if err != nil { // is logged
		failLink(w)
		return LinkFailed
	}
	defer content.Close()
	sent, err := send(w, &row, content)
	event := l.opts.Logger.Debug()
	switch {
	case err == nil:
		result = LinkDownloaded
	case errors.Is(err, errNotSent):
		result = LinkInterrupted
	default:
		result, event = LinkFailed, l.opts.Logger.Error()
	}
	event.Err(err).Str("artifact_id", string(t.Artifact)).Str("principal", t.Principal).Int64("bytes", sent).
		Str("result", result).Msg("download of an artifact ended")
	return result
}

// failLink answers a request whose content cannot be read.
func failLink(w http.ResponseWriter) {
	w.Header().Set("Retry-After", "10")
	http.Error(w, "the content cannot be read now; request another link with artifact.fetch", http.StatusServiceUnavailable)
}

// describeContent sets the headers of the content of an artifact. The media type of a row is valid.
func describeContent(h http.Header, row *Row) {
	h.Set("Content-Type", row.MediaType)
	h.Set("Content-Length", strconv.FormatInt(row.Size, 10))
	h.Set("Content-Disposition", `attachment; filename="`+string(row.ID)+`"`)
	h.Set("Accept-Ranges", "none")
	if sum, err := hex.DecodeString(row.SHA256); err == nil {
		digest := base64.StdEncoding.EncodeToString(sum)
		h.Set("Repr-Digest", "sha-256=:"+digest+":") // RFC 9530
		h.Set("Digest", "sha-256="+digest)           // RFC 3230
	}
}

// errNotSent is the cause of an error of the connection to the client.
var errNotSent = errors.New("the client does not receive the content")

// send answers with the content of an artifact, and returns the number of bytes that the connection has
// accepted. If the first bytes cannot be read the answer is an error; later, the connection is closed
// before the end of the content.
func send(w http.ResponseWriter, row *Row, content io.Reader) (sent int64, err error) {
	control := http.NewResponseController(w)
	buf := make([]byte, min(row.Size, downloadChunk))
	for first := true; first || sent < row.Size; first = false {
		chunk := buf[:min(row.Size-sent, downloadChunk)]
		if _, err := io.ReadFull(content, chunk); err != nil {
			if first {
				failLink(w)
			}
			return sent, fmt.Errorf("read the content: %w", err)
		}
		if first {
			describeContent(w.Header(), row)
		}
		if err := control.SetWriteDeadline(time.Now().Add(chunkTimeout)); err != nil {
			return sent, fmt.Errorf("%w: %w", errNotSent, err)
		}
		n, err := w.Write(chunk)
		if sent += int64(n); err != nil {
			return sent, fmt.Errorf("%w: %w", errNotSent, err)
		}
	}
	return sent, nil
}
