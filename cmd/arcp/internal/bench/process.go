package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// inParallel calls do for 0 … n-1 on a number of goroutines and returns when all calls have returned. After the
// first error, which it returns, no further call starts.
func inParallel(workers, n int, do func(i int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	var once sync.Once
	var failure error
	for range workers {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					once.Do(func() { failure = err })
					next.Store(int64(n))
					return
				}
			}
		})
	}
	group.Wait()
	return failure
}

// freeMemory makes the runtime collect garbage and return memory to the kernel.
func freeMemory(ctx context.Context, admin string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, admin+"/debug/freemem", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("free memory: %s", resp.Status)
	}
	return nil
}

// percentile sorts the samples and returns the percentile p, from 0 to 1, in milliseconds.
func percentile(samples []time.Duration, p float64) float64 {
	if len(samples) == 0 {
		return 0
	}
	slices.Sort(samples)
	i := min(int(p*float64(len(samples))), len(samples)-1)
	return float64(samples[i].Microseconds()) / 1000
}
