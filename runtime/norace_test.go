//go:build !race

package runtime_test

const racing = false
