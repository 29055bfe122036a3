//go:build linux

package access_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/access"
)

// Files opens the paths that its Check allows. A tool gets one from Job.Authority.
func ExampleFiles() {
	dir, err := os.MkdirTemp("", "access")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		fmt.Println(err)
		return
	}
	name := filepath.Join(dir, "greeting")
	if err := os.WriteFile(name, []byte("hello"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	files := access.NewFiles(func(namespace, target string) error {
		if namespace == arcp.NamespaceFSRead && strings.HasPrefix(target, dir+"/") {
			return nil
		}
		return arcp.Errorf(arcp.CodePermissionDenied, "%s of %s", namespace, target)
	})
	content, err := files.ReadFile(name, 1<<10)
	fmt.Println(string(content), err)
	_, err = files.ReadFile("/etc/hostname", 1<<10)
	refused, _ := errors.AsType[*arcp.Error](err)
	fmt.Println(refused.Code)
	// Output:
	// hello <nil>
	// PERMISSION_DENIED
}
