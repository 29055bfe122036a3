package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
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

// selfCPU returns the CPU time of this process in seconds.
func selfCPU() float64 {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// ticks is USER_HZ, which Linux fixes for /proc.
const ticks = 100

// processCPU returns the CPU time of another process in seconds, or 0 after an error.
func processCPU(pid int) float64 {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name, in parentheses, may contain spaces. The state and 10 more fields follow, then
	// utime and stime.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseFloat(string(fields[11]), 64) // the kernel writes numbers
	system, _ := strconv.ParseFloat(string(fields[12]), 64)
	return (user + system) / ticks
}

// residentMemory returns the RSS of a process in bytes.
func residentMemory(pid int) (int64, error) {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/statm: %q", pid, statm)
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err
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
