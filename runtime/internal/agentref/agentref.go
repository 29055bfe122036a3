// Package agentref has the errors for references that name no tool, and for changes of another
// generation of the tools.
package agentref

import (
	"fmt"
	"iter"
	"strings"

	"github.com/agnivade/levenshtein"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/internal/clip"
)

// NotFound returns the error for a reference without a tool (SPEC.md §2.3): INVALID_ARGUMENT if the
// reference is malformed, AGENT_VERSION_NOT_AVAILABLE with details {versions} if its name has other
// versions, and AGENT_NOT_AVAILABLE otherwise. The last error may suggest one of the names.
func NotFound(ref string, versions []string, names iter.Seq[string]) *arcp.Error {
	parsed, err := arcp.ParseAgentRef(ref)
	switch {
	case err != nil:
		return arcp.Errorf(arcp.CodeInvalidArgument, "%s", clip.Ellipsis(err.Error(), 2*arcp.MaxIDLen))
	case len(versions) == 0:
		return arcp.Errorf(arcp.CodeAgentNotAvailable, "no tool or agent is named %q%s", parsed.Name, hint(parsed.Name, names))
	}
	return arcp.Errorf(arcp.CodeAgentVersionNotAvailable, "%s has no version %s; there are %s",
		parsed.Name, parsed.Version, strings.Join(versions, ", ")).WithDetails(struct {
		Versions []string `json:"versions"`
	}{versions})
}

// Mismatch returns the error for a change that expects another number, such as the generation:
// FAILED_PRECONDITION with details {expected, actual}.
func Mismatch(number string, expected, actual uint64) *arcp.Error {
	return arcp.Errorf(arcp.CodeFailedPrecondition, "the %s is %d, not %d: look again at what is there, and change that",
		number, actual, expected).WithDetails(struct {
		Expected uint64 `json:"expected"`
		Actual   uint64 `json:"actual"`
	}{expected, actual})
}

// maxHintBytes bounds the work that an unknown name causes.
const maxHintBytes = 64

// hint returns a text with the name that is closest to an unknown name, or "". The distance is at
// most 3 bytes and a third of the name.
func hint(unknown string, names iter.Seq[string]) string {
	if len(unknown) > maxHintBytes {
		return ""
	}
	best, least := "", min(len(unknown)/3, 3)+1
	for name := range names {
		if longer := len(name) - len(unknown); longer >= least || -longer >= least {
			continue
		}
		if d := levenshtein.ComputeDistance(unknown, name); d < least {
			best, least = name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}
