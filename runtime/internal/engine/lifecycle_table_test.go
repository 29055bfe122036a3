package engine

import "testing"

// TestLifecycleTable walks every state and event of the lifecycle.
func TestLifecycleTable(t *testing.T) {
	for from := range lifecycle(lifecycles) {
		for ev := range lifecycleEvent(lifecycleEvents) {
			to := from
			to.apply(ev)
			again := to
			if again.apply(ev); again != to {
				t.Errorf("state %d, event %d twice: %d, then %d", from, ev, to, again)
			}
			if (from == lifeEnded || from == lifeRefused) && to != from {
				t.Errorf("final state %d changes to %d with event %d", from, to, ev)
			}
			if from.isFinal() && !to.isFinal() {
				t.Errorf("a job that is over goes on: state %d, event %d: %d", from, ev, to)
			}
			if !from.open() && to.open() {
				t.Errorf("a job that takes no commands takes them again: state %d, event %d: %d", from, ev, to)
			}
			if ev == onClosed && to.open() {
				t.Errorf("state %d takes commands after the last supervisor", to)
			}
			if ev == onStop && to.startable() {
				t.Errorf("state %d starts a supervisor after the stop", to)
			}
			if to == lifeRefused && from != to && ev != onRefused {
				t.Errorf("event %d refuses a claim in state %d", ev, from)
			}
		}
		if from.startable() && (from.isFinal() || from.aborted()) {
			t.Errorf("state %d starts a supervisor", from)
		}
	}
	accepted := lifeAccepted
	if accepted.apply(onRefused); accepted != lifeAccepted {
		t.Errorf("a durable job is refused: %d", accepted)
	}
}

// TestSlotTable walks every state and event of the slotState.
func TestSlotTable(t *testing.T) {
	changes := map[[2]slotState]slotEvent{
		{slotNone, slotHeld}: onSlot, {slotNone, slotQueued}: onQueue, {slotNone, slotResting}: onRest,
		{slotQueued, slotHeld}: onSlot, {slotQueued, slotNone}: onRelease,
		{slotHeld, slotNone}: onRelease, {slotHeld, slotResting}: onRest,
		{slotResting, slotNone}: onResume,
	}
	seen := 0
	for from := range slotState(slotStates) {
		for ev := range slotEvent(slotEvents) {
			to := from
			if !to.apply(ev) {
				continue
			}
			seen++
			if want, ok := changes[[2]slotState{from, to}]; !ok || want != ev {
				t.Errorf("state %d, event %d: %d", from, ev, to)
			}
		}
	}
	if seen != len(changes) {
		t.Errorf("%d changes, want %d", seen, len(changes))
	}
}
