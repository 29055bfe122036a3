//go:build race

package e2e

import "github.com/arcpd/arcpd/arcp/draft/strict"

// playedLibraries are the libraries that the checks of the draft dialect play. The race detector watches
// the code of the checks, which is the same for each library, and makes it ten times as slow.
var playedLibraries = []strict.Library{strict.TypeScript, strict.Python}
