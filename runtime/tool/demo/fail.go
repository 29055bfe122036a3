package demo

import (
	"context"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

type failArgs struct {
	Code      arcp.Code `json:"code"`
	Message   string    `json:"message"`
	Retryable *bool     `json:"retryable"`
	Details   arcp.Raw  `json:"details"`
}

// failSchema returns the input schema of demo.fail with the list of codes.
func failSchema() (arcp.Raw, error) {
	var codes []arcp.Code
	for _, c := range arcp.Codes {
		if c.Code != arcp.CodeOK {
			codes = append(codes, c.Code)
		}
	}
	enum, err := arcp.Marshal(codes)
	if err != nil {
		return nil, err
	}
	return arcp.Raw(`{"type":"object","properties":{` +
		`"code":{"type":"string","description":"A canonical error code.","enum":` + string(enum) + `},` +
		`"message":{"type":"string"},` +
		`"retryable":{"type":["boolean","null"],"description":"Default: as usual for the code."},` +
		`"details":{"type":["object","null"]}},` +
		`"required":["code","message"],"additionalProperties":false}`), nil
}

func newFail() (*tool.Tool, error) {
	c := failingAtRestart("fail", "Fails with the error it is given.")
	var err error
	if c.InputSchema, err = failSchema(); err != nil {
		return nil, err
	}
	return tool.New(c, fail)
}

func fail(_ context.Context, _ tool.Job, a failArgs) (arcp.Raw, error) {
	e := arcp.Errorf(a.Code, "%s", a.Message)
	if a.Retryable != nil {
		e.Retryable = *a.Retryable
	}
	if a.Details.Kind() == '{' {
		e.Details = a.Details
	}
	return nil, e
}

func newPanic() (*tool.Tool, error) {
	return tool.New(failingAtRestart("panic", "Panics."),
		func(context.Context, tool.Job, struct{}) (arcp.Raw, error) { panic("demo.panic was called") })
}
