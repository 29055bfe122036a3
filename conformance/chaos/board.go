package chaos

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// boardSize is how many of a principal's latest jobs are on the board, and
// boardFresh how many of them are asked for most: they still run.
const (
	boardSize  = 64
	boardFresh = 8
)

// board publishes the jobs of sessions to other sessions, so that they can try to follow and
// cancel them.
type board struct {
	mu   sync.Mutex
	jobs map[string][]posted
	keys map[string]int // idempotency keys begun, by principal
}

type posted struct {
	job arcp.JobID
	by  arcp.SessionID
}

func newBoard() *board { return &board{jobs: make(map[string][]posted), keys: make(map[string]int)} }

func (b *board) post(principal string, by arcp.SessionID, job arcp.JobID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := append(b.jobs[principal], posted{job, by})
	b.jobs[principal] = slices.Clone(list[max(0, len(list)-boardSize):])
}

// pick returns a job of a principal that another session has submitted.
func (b *board) pick(rnd *rand.Rand, principal string, except arcp.SessionID) (arcp.JobID, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.jobs[principal]
	if len(list) == 0 {
		return "", false
	}
	from := 0
	if rnd.IntN(4) > 0 {
		from = max(0, len(list)-boardFresh)
	}
	p := list[from+rnd.IntN(len(list)-from)]
	return p.job, p.by != except
}

// key returns a number for an idempotency key that sessions of the principal use
// about now.
func (b *board) key(rnd *rand.Rand, principal string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if rnd.IntN(4) == 0 {
		b.keys[principal]++
	}
	return max(0, b.keys[principal]-rnd.IntN(3))
}
