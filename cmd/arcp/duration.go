package main

import (
	"errors"
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
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("less than 0")
	}
	if err != nil {
		return err
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
