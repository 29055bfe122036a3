package machine

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/arcpd/arcpd/arcp"
)

// Reasons are cut between two characters.
func TestClipReason(t *testing.T) {
	reason := ClipReason(strings.Repeat("é", MaxReason))
	if len(reason) > MaxReason || len(reason) < MaxReason-8 || !utf8.ValidString(reason) || !strings.HasSuffix(reason, "é…") {
		t.Errorf("the reason has %d bytes and ends with %q", len(reason), reason[len(reason)-8:])
	}
	if short := strings.Repeat("é", MaxReason/2); ClipReason(short) != short {
		t.Error("a reason of the greatest length is cut")
	}
}

// Of the features in a client's list only the offered ones are retained.
func TestUnofferedFeaturesAreDropped(t *testing.T) {
	asked := arcp.Capabilities{Features: []string{"ack"}}
	for n := range 20_000 {
		asked.Features = append(asked.Features, fmt.Sprint("feature-", n))
	}
	n := negotiate(&testConfig().Offer, &asked)
	if len(n.listedByClient) != 1 || cap(n.listedByClient) > len(testConfig().Offer.Features)+1 {
		t.Errorf("%d features are kept, in a list of %d", len(n.listedByClient), cap(n.listedByClient))
	}
}
