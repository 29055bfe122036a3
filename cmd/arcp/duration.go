package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
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
	d, err := settings.ParseDuration(text)
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
