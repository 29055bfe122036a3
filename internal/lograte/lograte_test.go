package lograte

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

func TestLimiterAdmitsTheFirstLinesOfAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		var l Limiter
		log, n := zerolog.New(&out), 0
		add := func(lines int) {
			for range lines {
				l.Limit(log.Warn()).Msg(strconv.Itoa(n))
				n++
			}
		}
		add(PerMinute + 5)
		time.Sleep(time.Minute - time.Nanosecond)
		add(1)
		time.Sleep(time.Nanosecond)
		add(2)
		var want []string
		for i := range PerMinute {
			want = append(want, `{"level":"warn","message":"`+strconv.Itoa(i)+`"}`)
		}
		want = append(want, `{"level":"warn","omitted":6,"message":"16"}`, `{"level":"warn","message":"17"}`, "")
		if got := strings.Split(out.String(), "\n"); !slices.Equal(got, want) {
			t.Errorf("the log has %q, want %q", got, want)
		}
	})
}
