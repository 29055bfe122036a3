package builtin

import "testing"

func TestNames(t *testing.T) {
	if names := Names(); !names["jobs.get"] || !names["schedule.create"] || names["demo.echo"] {
		t.Errorf("Names() = %v, want the built-in tools and no other", names)
	}
}
