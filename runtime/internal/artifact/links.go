package artifact

import (
	"container/list"
	"crypto/rand"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
)

// LinkLifetime is the time after which an unused link is not valid any more.
const LinkLifetime = 5 * time.Minute

// Bounds of links. A link counts from Create to its expiry, or to the end of its download.
const (
	maxLinksPerPrincipal = 64   // a client downloads few artifacts at once
	maxLinks             = 4096 // with one descriptor and one buffer for each download
)

// Results of links, for LinkOptions.Count.
const (
	LinkIssued      = "issued"      // a client was sent the link
	LinkNotIssued   = "not_issued"  // there are too many links
	LinkDownloaded  = "downloaded"  // all content was sent
	LinkInterrupted = "interrupted" // the client disconnected, or did not read
	LinkRefused     = "refused"     // the request was answered with 404, or its host or origin is not allowed
	LinkFailed      = "failed"      // the content could not be read
)

// LinkResults lists the results of links.
var LinkResults = []string{LinkIssued, LinkNotIssued, LinkDownloaded, LinkInterrupted, LinkRefused, LinkFailed}

// LinkOptions are the options of Links.
type LinkOptions struct {
	Prefix string // URL of the links without their token and the slash before it
	Store  *Store
	Count  func(result string) // counts a link by what became of it: one of LinkResults
	Logger zerolog.Logger
}

// Links issues links for downloads over HTTP, and serves them (SPEC.md §5.17). A link is a URL that ends
// in a random token. It is valid for one download. Links are in memory only: they end with the process.
// Any goroutine may call the methods.
type Links struct {
	opts LinkOptions

	mu         sync.Mutex
	unused     *list.List                          // of *link, the oldest first
	byToken    map[[sha256.Size]byte]*list.Element // of unused, by the digest of the token
	principals map[string]int                      // number of unused links and of downloads
	downloads  int
}

// LinkTarget is the content that a link gives access to.
type LinkTarget struct {
	Principal string
	Artifact  arcp.ArtifactID

	// Allowed returns an error if the principal may not read its artifacts any more. Any goroutine may
	// call it.
	Allowed func() error
}

// link is an unused link. The token itself is not held.
type link struct {
	LinkTarget
	digest  [sha256.Size]byte // of the token
	expires time.Time
}

// NewLinks returns Links without a link.
func NewLinks(o LinkOptions) *Links {
	return &Links{opts: o, unused: list.New(), byToken: make(map[[sha256.Size]byte]*list.Element), principals: make(map[string]int)}
}

// Create returns a new link. It returns "" if the principal, or all principals, have too many.
func (l *Links) Create(t LinkTarget) arcp.Secret {
	token := rand.Text() // at least 128 bits
	if !l.add(&link{LinkTarget: t, digest: sha256.Sum256([]byte(token)), expires: time.Now().Add(LinkLifetime)}) {
		l.opts.Count(LinkNotIssued)
		return ""
	}
	l.opts.Count(LinkIssued)
	return arcp.Secret(l.opts.Prefix + "/" + token)
}

// Refused counts a request that was refused before it reached ServeHTTP.
func (l *Links) Refused() { l.opts.Count(LinkRefused) }

// add adds a link unless there are too many.
func (l *Links) add(k *link) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeExpired(time.Now())
	if l.unused.Len()+l.downloads >= maxLinks || l.principals[k.Principal] >= maxLinksPerPrincipal {
		return false
	}
	l.byToken[k.digest] = l.unused.PushBack(k)
	l.principals[k.Principal]++
	return true
}

// removeExpired removes expired links. All links are valid for the same time, so that the oldest expire
// first. Called with mu.
func (l *Links) removeExpired(now time.Time) {
	for e := l.unused.Front(); e != nil && !now.Before(e.Value.(*link).expires); e = l.unused.Front() {
		l.remove(e)
		l.release(e.Value.(*link).Principal)
	}
}

// remove removes an unused link, which still counts. Called with mu.
func (l *Links) remove(e *list.Element) {
	delete(l.byToken, e.Value.(*link).digest)
	l.unused.Remove(e)
}

// release ends the count of a link of a principal. Called with mu.
func (l *Links) release(principal string) {
	if l.principals[principal]--; l.principals[principal] == 0 {
		delete(l.principals, principal)
	}
}

// find returns the target of an unused link.
func (l *Links) find(token string) (LinkTarget, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeExpired(time.Now())
	e := l.byToken[sha256.Sum256([]byte(token))]
	if e == nil {
		return LinkTarget{}, false
	}
	return e.Value.(*link).LinkTarget, true
}

// use is find for a download: the link is not valid any more. The caller calls done at the end of the
// download.
func (l *Links) use(token string) (t LinkTarget, done func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.removeExpired(time.Now())
	e := l.byToken[sha256.Sum256([]byte(token))]
	if e == nil {
		return LinkTarget{}, nil, false
	}
	t = e.Value.(*link).LinkTarget
	l.remove(e)
	l.downloads++
	return t, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.downloads--
		l.release(t.Principal)
	}, true
}
