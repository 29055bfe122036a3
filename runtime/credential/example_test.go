package credential_test

import (
	"fmt"

	"github.com/arcpd/arcpd/runtime/credential"
)

// A Redactor removes credential values from a tool's output, also where they are escaped.
func ExampleRedactor() {
	var r credential.Redactor
	r.Add("sk-1234567890\"abcdef")
	fmt.Println(r.Found([]byte(`{"note":"nothing"}`)))
	fmt.Println(r.Found([]byte(`{"note":"the key is sk-1234567890\"abcdef"}`)))
	// Output:
	// false
	// true
}
