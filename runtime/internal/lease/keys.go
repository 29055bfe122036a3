package lease

import (
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Members of a lease that are not namespaces. Any other key that is not in arcp.Namespaces is a
// permission that a tool requests. Its patterns are paths, URLs or names; see guessForm.
const (
	keyExpires      = "expires_at"
	keyCapabilities = "capabilities" // names without patterns, which grant nothing
)

// aliases are the other spellings of namespaces.
var aliases = func() map[string]string {
	m := map[string]string{
		"filesystem.read":  arcp.NamespaceFSRead,
		"filesystem.write": arcp.NamespaceFSWrite,
		"network.fetch":    arcp.NamespaceNetFetch,
	}
	for _, namespace := range arcp.Namespaces {
		m[snakeCase(namespace)] = namespace
	}
	return m
}()

// snakeCase returns the spelling of a namespace with underscores.
func snakeCase(namespace string) string { return strings.ReplaceAll(namespace, ".", "_") }

// canonicalNamespace returns the dotted spelling of a namespace.
func canonicalNamespace(key string) string {
	if d, ok := aliases[key]; ok {
		return d
	}
	return key
}

// optionalNamespaces lists the namespaces whose absence may allow everything. Inherit copies them from the
// parent.
var optionalNamespaces = []string{arcp.NamespaceModelUse, arcp.NamespaceThoughtWrite}

// form is the grammar of patterns and targets.
type form uint8

const (
	formAny  form = iota // a path, URL or name; see guessForm
	formPath             // an absolute file path
	formURL              // scheme, host, port and path
	formName             // segments separated by slashes, usually one
)

// formOf returns the grammar of a namespace.
func formOf(namespace string) form {
	switch namespace {
	case arcp.NamespaceFSRead, arcp.NamespaceFSWrite:
		return formPath
	case arcp.NamespaceNetFetch:
		return formURL
	case arcp.NamespaceToolCall, arcp.NamespaceAgentDelegate, arcp.NamespaceModelUse, arcp.NamespaceThoughtWrite:
		return formName
	}
	return formAny
}
