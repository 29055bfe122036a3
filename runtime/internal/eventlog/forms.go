package eventlog

import (
	"sync"

	"github.com/arcpd/arcpd/runtime/store"
)

// MaxForms is the number of forms that an event may have.
const MaxForms = 2

// Forms are encodings of the events of one write for the clients of another dialect. The cursors
// that return the events share them. Any goroutine may call its methods.
type Forms struct {
	mu sync.Mutex
	of map[*store.Event]*eventForms
}

// eventForms are the forms of one event.
type eventForms [MaxForms]struct {
	once  sync.Once
	value any
}

// Get returns form i of an event. The first call for a form makes it with encode, and the others
// return the same value. An event without forms is encoded by each call.
func (f *Forms) Get(e *store.Event, i int, encode func() any) any {
	f.mu.Lock()
	forms := f.of[e]
	f.mu.Unlock()
	if forms == nil {
		return encode()
	}
	form := &forms[i]
	form.once.Do(func() { form.value = encode() })
	return form.value
}

// Add adds events, and returns an estimate of the memory that the forms of the new ones take. An
// encoding may have the value of a result twice.
func (f *Forms) Add(events []*store.Event) (bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of == nil {
		f.of = make(map[*store.Event]*eventForms, len(events))
	}
	for _, e := range events {
		if f.of[e] == nil {
			f.of[e] = new(eventForms)
			bytes += 2*cap(e.Body) + formsBytes
		}
	}
	return bytes
}

// formsBytes is the memory of the forms of an event without their encodings.
const formsBytes = 256
