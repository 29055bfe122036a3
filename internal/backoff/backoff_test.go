package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/arcpd/arcpd/internal/backoff"
)

func TestDelayDoublesUpToTheLongest(t *testing.T) {
	p := backoff.Policy{Min: 30 * time.Second, Max: time.Hour}
	for failures, want := range map[int]time.Duration{
		0: 30 * time.Second, 1: 30 * time.Second, 2: time.Minute, 3: 2 * time.Minute, 7: 32 * time.Minute, 8: time.Hour, 1 << 40: time.Hour,
	} {
		if d := p.Delay(failures); d != want {
			t.Errorf("Delay(%d) = %v, want %v", failures, d, want)
		}
	}
}

func TestJitterLengthensADelay(t *testing.T) {
	p := backoff.Policy{Min: time.Second, Max: time.Minute, Jitter: 0.5}
	delays := make(map[time.Duration]bool)
	for range 100 {
		d := p.Delay(2)
		if d < 2*time.Second || d > 3*time.Second {
			t.Fatalf("Delay(2) = %v, want 2s to 3s", d)
		}
		delays[d] = true
	}
	if len(delays) < 2 {
		t.Error("100 delays are the same")
	}
	if d := p.Delay(20); d != time.Minute {
		t.Errorf("Delay(20) = %v, want the longest", d)
	}
}

func TestALongSuccessResetsTheDelay(t *testing.T) {
	b := backoff.Backoff{Policy: backoff.Policy{Min: time.Second, Max: time.Minute}}
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if d := b.Next(); d != want {
			t.Errorf("delay %d = %v, want %v", i, d, want)
		}
	}
	if b.Lasted(time.Minute); b.Next() != 8*time.Second {
		t.Error("a success that lasted no longer than Max has reset the delay")
	}
	if b.Lasted(time.Minute + 1); b.Next() != time.Second {
		t.Error("a success that lasted longer than Max has not reset the delay")
	}
}

func TestSleepEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := backoff.Sleep(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("Sleep = %v after %v, want nil after an hour", err, time.Since(began))
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("why")
		time.AfterFunc(time.Minute, func() { cancel(why) })
		began = time.Now()
		if err := backoff.Sleep(ctx, time.Hour); err != why || time.Since(began) != time.Minute {
			t.Errorf("Sleep = %v after %v, want %v after a minute", err, time.Since(began), why)
		}
	})
}
