package engine

// lifecycle is the state of a run from its submit to its release. It is guarded by
// run.mu and changes only by lifecycle.apply.
type lifecycle uint8

const (
	// lifeSubmitted: the write of the submit has no position in the log. Only the
	// supervisor of an early job starts, which makes that write. Entry: newRun. Exit:
	// the log accepts the write, or refuses it.
	lifeSubmitted lifecycle = iota

	// lifePlaced: the write has its position in the log. A supervisor may start: its
	// writes follow. Entry: eventlog.Append returns. Exit: the result of the write.
	lifePlaced

	// lifeAccepted: the job is durable. Entry: the result of the claim, or Recover.
	// Exit: a supervisor decides the job's outcome, or the runtime stops.
	lifeAccepted

	// lifeEnding: the outcome is being written. Commands are accepted and answered
	// after the end. Exit: the supervisor has finished.
	lifeEnding

	// lifeEnded: no command is accepted and nothing is written any more. Final.
	lifeEnded

	// lifeRefused: the store has refused the claim. There is no job. Final.
	lifeRefused

	// lifeStopped: the runtime stops and leaves the job to the next start. Exit: its
	// supervisor has finished, or its claim is refused.
	lifeStopped

	lifecycles = iota
)

// lifecycleEvent is an event that changes a lifecycle.
type lifecycleEvent uint8

const (
	onPlaced  lifecycleEvent = iota // the claim has its position in the log
	onDurable                       // the claim is durable
	onRefused                       // the claim is refused
	onOutcome                       // the outcome is decided, or the job's writes are refused
	onClosed                        // the last supervisor has finished
	onStop                          // the runtime stops

	lifecycleEvents = iota
)

// lifecycleTable has the next state for each state and event.
var lifecycleTable = [lifecycles][lifecycleEvents]lifecycle{
	//             onPlaced      onDurable     onRefused    onOutcome     onClosed     onStop
	lifeSubmitted: {lifePlaced, lifeAccepted, lifeRefused, lifeEnding, lifeEnded, lifeStopped},
	lifePlaced:    {lifePlaced, lifeAccepted, lifeRefused, lifeEnding, lifeEnded, lifeStopped},
	lifeAccepted:  {lifeAccepted, lifeAccepted, lifeAccepted, lifeEnding, lifeEnded, lifeStopped},
	lifeEnding:    {lifeEnding, lifeEnding, lifeRefused, lifeEnding, lifeEnded, lifeEnding},
	lifeEnded:     {lifeEnded, lifeEnded, lifeEnded, lifeEnded, lifeEnded, lifeEnded},
	lifeRefused:   {lifeRefused, lifeRefused, lifeRefused, lifeRefused, lifeRefused, lifeRefused},
	lifeStopped:   {lifeStopped, lifeStopped, lifeRefused, lifeStopped, lifeEnded, lifeStopped},
}

// apply applies an event.
func (l *lifecycle) apply(ev lifecycleEvent) { *l = lifecycleTable[*l][ev] }

// startable reports whether a supervisor may start.
func (l lifecycle) startable() bool { return l == lifePlaced || l == lifeAccepted }

// open reports whether commands are accepted.
func (l lifecycle) open() bool { return l <= lifeEnding }

// aborted reports whether a supervisor has to finish without an outcome.
func (l lifecycle) aborted() bool { return l == lifeRefused || l == lifeStopped }

// isFinal reports whether no attempt follows and no child is created any more.
func (l lifecycle) isFinal() bool { return l == lifeEnding || l == lifeEnded || l == lifeRefused }

// slotState is the state of a run in the queue of its tool. It is guarded by Engine.mu
// and changes only by slotState.apply.
type slotState uint8

const (
	// slotNone: the run has neither a slot nor a place in the queue. Entry: newRun,
	// or the run releases them. Exit: the run gets one of them, or rests.
	slotNone slotState = iota

	// slotQueued: the run has a place in the queue of its tool. Exit: a slot is free
	// for it, or the job ends.
	slotQueued

	// slotHeld: the run holds a slot of its tool, or its tool needs none. Exit: the
	// tool has returned, or the run rests.
	slotHeld

	// slotResting: the run is between two attempts; Engine.Stop does not wait for it.
	// Exit: its next attempt is due, or the job ends.
	slotResting

	slotStates = iota
)

// slotEvent is an event that changes a slotState.
type slotEvent uint8

const (
	onSlot    slotEvent = iota // the run gets a slot
	onQueue                    // the run gets a place in the queue
	onRelease                  // the run releases its slot or place
	onRest                     // an attempt has ended and another one follows later
	onResume                   // the next attempt is due, or the job has ended

	slotEvents = iota
)

// slotTable has the next state for each state and event.
var slotTable = [slotStates][slotEvents]slotState{
	//             onSlot     onQueue      onRelease     onRest        onResume
	slotNone:    {slotHeld, slotQueued, slotNone, slotResting, slotNone},
	slotQueued:  {slotHeld, slotQueued, slotNone, slotQueued, slotQueued},
	slotHeld:    {slotHeld, slotHeld, slotNone, slotResting, slotHeld},
	slotResting: {slotResting, slotResting, slotResting, slotResting, slotNone},
}

// apply applies an event and reports whether it changed the state.
func (s *slotState) apply(ev slotEvent) bool {
	next := slotTable[*s][ev]
	changed := next != *s
	*s = next
	return changed
}

// exit is the reason for which a supervisor ends. A greater one replaces a smaller one.
type exit uint8

const (
	exitNone   exit = iota // the supervisor continues
	exitIdle               // the job waits for a slot, and no command is pending
	exitPause              // the attempt has stopped at a checkpoint for the shutdown
	exitRewind             // another attempt follows: from a checkpoint that a client has chosen, or after the next start
	exitRetry              // the attempt has failed or is lost, and another one follows
	exitEnd                // the job has its outcome
)

// set replaces a smaller reason.
func (e *exit) set(to exit) { *e = max(*e, to) }
