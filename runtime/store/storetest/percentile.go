package storetest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func reportPercentiles(b *testing.B, lat []time.Duration) {
	slices.Sort(lat)
	b.ReportMetric(float64(lat[len(lat)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(lat[len(lat)*99/100].Microseconds()), "p99-µs")
}

// meter measures the time between start and stop, and the processor time of the process
// during it, which stays meaningful on a busy machine.
type meter struct {
	wall, cpu time.Duration
	began     time.Time
	used      time.Duration
}

func (m *meter) start() { m.began, m.used = time.Now(), processTime() }

func (m *meter) stop() {
	m.wall += time.Since(m.began)
	m.cpu += processTime() - m.used
}

func (m *meter) report(b *testing.B, n int, unit string) {
	b.ReportMetric(float64(n)/m.wall.Seconds(), unit+"/s")
	b.ReportMetric(float64(n)/m.cpu.Seconds(), unit+"/cpu-s")
}

// BenchFsync measures the lower bound of a durable commit: appending 512 bytes to a file
// and syncing it.
func BenchFsync(b *testing.B) {
	f, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	line := make([]byte, 512)
	var lat []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := f.Write(line); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		lat = append(lat, time.Since(start))
	}
	reportPercentiles(b, lat)
}
