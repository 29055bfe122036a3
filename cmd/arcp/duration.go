package main

import (
	"cmp"
	"errors"
	"regexp"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// durationValue is the value of a flag with a duration of 0 or more.
type durationValue time.Duration

// addDuration adds a flag with a duration of 0 or more.
func addDuration(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, usage string) {
	*p = value
	f.Var((*durationValue)(p), name, usage)
}

// Set implements pflag.Value.
func (v *durationValue) Set(text string) error {
	d, err := parseDuration(text)
	if err != nil {
		return err
	}
	if d < 0 {
		return errors.New("less than 0")
	}
	*v = durationValue(d)
	return nil
}

// Type implements pflag.Value.
func (v *durationValue) Type() string { return "duration" }

// String implements pflag.Value. The text of 0 is empty, so that the help has no default.
func (v *durationValue) String() string {
	if *v == 0 {
		return ""
	}
	return time.Duration(*v).String()
}

var errDuration = errors.New("give for example 90s, 2h30m, 1d or 2w")

// longUnits matches weeks and days before the units of time.ParseDuration.
var longUnits = regexp.MustCompile(`^(?:([0-9]{1,3})w)?(?:([0-9]{1,4})d)?(.*)$`)

// parseDuration parses a duration as time.ParseDuration does, with weeks of 7 days and days of 24 hours: 1w2d3h.
func parseDuration(text string) (time.Duration, error) {
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
