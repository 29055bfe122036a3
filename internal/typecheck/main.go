// Command typecheck type-checks the packages of a module and their tests for GOOS and GOARCH. It reads the source of
// all dependencies and ignores the bodies of their functions, so it needs seconds where a build for another system
// needs minutes.
package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
)

func main() {
	c := newChecker(cmp.Or(os.Getenv("GOARCH"), runtime.GOARCH))
	if err := c.check("."); err != nil {
		fmt.Fprintln(os.Stderr, "typecheck:", err)
		os.Exit(1)
	}
	for _, mistake := range c.mistakes {
		fmt.Fprintln(os.Stderr, mistake)
	}
	if len(c.mistakes) > 0 {
		os.Exit(1)
	}
}
