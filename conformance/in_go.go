package conformance

import "context"

// inGo are the checks that a script cannot say, by id.
var inGo = map[string]func(ctx context.Context, t *T){
	"takeover.race":   takeoverRace,
	"catalogue.phase": cataloguePhase,
}
