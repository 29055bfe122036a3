//go:build race

package e2e

import "github.com/arcpd/arcpd/arcp/draft/strict"

// raceDetector reports whether the tests run with the race detector.
const raceDetector = true

// playedLibraries are the libraries that the checks of the draft dialect play. The race detector watches
// the code of the checks, which is the same for each library, and makes it ten times as slow.
var playedLibraries = []strict.Library{strict.TypeScript, strict.Python}

// parallelChecks is the number of checks that run at a time. The large results of some take seconds of
// work with the race detector. A client that is kept from the processor for longer than its heartbeats
// allow loses its connection.
const parallelChecks = 4
