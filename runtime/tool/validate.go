package tool

// validator checks arguments against a compiled input schema.
type validator struct{}
