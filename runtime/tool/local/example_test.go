package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/arcpd/arcpd/runtime/tool/local"
)

// A directory is leased under a name before it is made, and removed by its name.
func ExampleDirectories() {
	root, err := os.MkdirTemp("", "local")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(root)
	all, err := local.OpenDirectories(root)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer all.Close()
	name := local.NewName()
	path, err := all.Make(name)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(os.WriteFile(filepath.Join(path, "file"), nil, 0o600))
	fmt.Println(all.Remove(context.Background(), name))
	_, err = os.Stat(path)
	fmt.Println(os.IsNotExist(err))
	// Output:
	// <nil>
	// <nil>
	// true
}
