package eventlog

import (
	"sync"
	"sync/atomic"

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
type eventForms [MaxForms]Form

// Form is one encoding of an event. Any goroutine may call its methods.
type Form struct {
	once  sync.Once
	value atomic.Pointer[any]
}

// Of returns form i of an event; nil: the event has no forms.
func (f *Forms) Of(e *store.Event, i int) *Form {
	f.mu.Lock()
	forms := f.of[e]
	f.mu.Unlock()
	if forms == nil {
		return nil
	}
	return &forms[i]
}

// Value returns the form; nil: it is not encoded yet.
func (f *Form) Value() any {
	if v := f.value.Load(); v != nil {
		return *v
	}
	return nil
}

// Get returns the form. The first call encodes it, and the others return the same value.
func (f *Form) Get(encode func() any) any {
	f.once.Do(func() { f.value.Store(new(encode())) })
	return f.Value()
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
