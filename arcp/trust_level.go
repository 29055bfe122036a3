package arcp

// TrustLevel is the degree to which the runtime trusts a principal or a session. The zero value
// is below Untrusted: a tool with this minimum is open to every level.
type TrustLevel string

// The trust levels.
const (
	Untrusted   TrustLevel = "untrusted"
	Constrained TrustLevel = "constrained"
	Trusted     TrustLevel = "trusted"
	Privileged  TrustLevel = "privileged"
)

// TrustLevels lists the trust levels in ascending order.
var TrustLevels = []TrustLevel{Untrusted, Constrained, Trusted, Privileged}

// Rank returns the position of a level in the order: 0 for the zero value, 1 for Untrusted, -1
// for an unknown level.
func (l TrustLevel) Rank() int {
	switch l {
	case "":
		return 0
	case Untrusted:
		return 1
	case Constrained:
		return 2
	case Trusted:
		return 3
	case Privileged:
		return 4
	}
	return -1
}
