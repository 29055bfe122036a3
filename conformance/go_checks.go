package conformance

import "context"

// inGo are the checks that are functions instead of scripts, by id.
var inGo = map[string]func(ctx context.Context, t *checkRun){
	"takeover.race":       takeoverRace,
	"catalogue.phase":     catalogPhase,
	"draft.takeover.race": draftTakeoverRace,
}
