package schedule

import "time"

// maxOffset is more than any offset of a zone from UTC, and less than the time between two changes of
// the clocks of a zone.
const maxOffset = 26 * time.Hour

// wallOf returns what a clock shows at t in its zone, as a time in UTC.
func wallOf(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.UTC().Add(time.Duration(offset) * time.Second).Truncate(time.Second)
}

// instantOf returns the first instant at which a clock in the zone shows wall. ok is false if no clock
// ever shows it, because it was set forward.
func instantOf(wall time.Time, zone *time.Location) (at time.Time, ok bool) {
	for _, near := range [...]time.Duration{-maxOffset, maxOffset} {
		_, offset := wall.Add(near).In(zone).Zone()
		at = wall.Add(-time.Duration(offset) * time.Second)
		if wallOf(at.In(zone)).Equal(wall) {
			return at, true
		}
	}
	return time.Time{}, false
}
