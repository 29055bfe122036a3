package mcp

import (
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Names are counted like all that a list has, and one that is too long is not kept.
func TestLongNamesAreDropped(t *testing.T) {
	long := strings.Repeat("n", 1<<20)
	if d := define(&sdk.Tool{Name: long}, nil); len(d.name) > maxName+1 {
		t.Errorf("%d bytes of a name are kept", len(d.name))
	}
	bubble(t, Config{}, script(map[string]string{"initialize": hello, "tools/list": listing("")}), func(fx *fixture) {
		fx.start()
		for i := range 50 {
			fx.src.logOmitted(long+fmt.Sprint(i), fmt.Errorf("%s", long))
		}
		size := 0
		for k, v := range fx.src.faults {
			size += len(k) + len(v)
		}
		if size > 50*(maxName+maxFault+10) {
			t.Errorf("%d bytes of faults are kept", size)
		}
	})
}
