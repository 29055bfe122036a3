package settings

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"time"
)

var errDuration = errors.New("give for example 90s, 2h30m, 1d or 2w")

// longUnits matches weeks and days before the units of time.ParseDuration.
var longUnits = regexp.MustCompile(`^(?:([0-9]{1,3})w)?(?:([0-9]{1,4})d)?(.*)$`)

// ParseDuration parses a duration as time.ParseDuration does, with weeks of 7 days and days of 24 hours: 1w2d3h.
func ParseDuration(text string) (time.Duration, error) {
	m := longUnits.FindStringSubmatch(text)
	if m == nil || m[1] == "" && m[2] == "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			err = errDuration
		}
		return d, err
	}
	weeks, _ := strconv.Atoi(cmp.Or(m[1], "0")) // digits
	days, _ := strconv.Atoi(cmp.Or(m[2], "0"))  // digits
	d := time.Duration(7*weeks+days) * 24 * time.Hour
	if m[3] == "" {
		return d, nil
	}
	rest, err := time.ParseDuration(m[3])
	if err != nil || rest < 0 || m[3][0] == '+' || d+rest < d {
		return 0, errDuration
	}
	return d + rest, nil
}
