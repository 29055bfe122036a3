package engine

import (
	"slices"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/internal/approval"
	"github.com/arcpd/arcpd/runtime/internal/job"
)

// scrubber removes the values of credentials from the output of tools.
type scrubber struct{ vault *credential.Vault } // nil: there are none

func (c *Config) scrubber() scrubber { return scrubber{c.Vault} }

func (s scrubber) bytes(b []byte) []byte {
	if s.vault == nil || len(b) == 0 {
		return b
	}
	return s.vault.Scrub(b)
}

func (s scrubber) text(text string) string {
	if s.vault == nil || text == "" {
		return text
	}
	return string(s.vault.Scrub([]byte(text)))
}

// question scrubs a question, which then shares no memory with the tool.
func (s scrubber) question(q *approval.Row) {
	if s.vault == nil {
		return
	}
	q.Action, q.Details, q.Default, q.Schema = s.text(q.Action), s.bytes(q.Details), s.bytes(q.Default), s.bytes(q.Schema)
	q.Options = slices.Clone(q.Options)
	for i := range q.Options {
		o := &q.Options[i]
		o.ID, o.Label = s.text(o.ID), s.text(o.Label)
	}
	if p := q.Permission; p != nil {
		q.Permission = &arcp.PermissionTerm{Permission: s.text(p.Permission), Resource: s.text(p.Resource),
			Operation: s.text(p.Operation), Seconds: p.Seconds}
	}
}

func (s scrubber) outcome(o *job.Outcome) {
	if s.vault == nil {
		return
	}
	o.Value = s.bytes(o.Value) // a Reference is scrubbed when the tool sets it
	if o.Err == nil {
		return
	}
	err := *o.Err
	err.Message, err.Details = s.text(err.Message), s.bytes(err.Details)
	if err.Cause != nil {
		err.Cause = &arcp.Cause{Code: err.Cause.Code, Message: s.text(err.Cause.Message)}
	}
	o.Err = &err
}
