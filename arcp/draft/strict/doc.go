// Package strict judges the frames that a runtime sends to a client of the draft dialect as the
// client's library decodes them. The tables are facts about the published libraries; they share
// nothing with package draft, which they test.
package strict
