//go:build !race

package e2e

import "github.com/arcpd/arcpd/arcp/draft/strict"

// raceDetector reports whether the tests run with the race detector.
const raceDetector = false

// playedLibraries are the libraries that the checks of the draft dialect play.
var playedLibraries = strict.Libraries

// parallelChecks is the number of checks that run at a time. Some wait for heartbeats.
const parallelChecks = 16
