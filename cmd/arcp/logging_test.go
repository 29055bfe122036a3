package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

// The console prints the stack of a panic as lines, and other records as one.
func TestConsolePrintsStacks(t *testing.T) {
	var out bytes.Buffer
	log := zerolog.New(newConsoleLog(&out))
	log.Error().Str("job_id", "job_1").Str(stackField, "goroutine 1 [running]:\nmain.main()\n\t/src/main.go:7 +0x1d\n").Msg("it panicked")
	log.Info().Str("job_id", "job_2").Msg("no panic")
	const want = "ERR it panicked job_id=job_1\n    goroutine 1 [running]:\n    main.main()\n    \t/src/main.go:7 +0x1d\n"
	if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, stackField+"=") || strings.Count(got, "\n") != 5 {
		t.Errorf("the console has\n%s\nwant\n%s", got, want)
	}
}
