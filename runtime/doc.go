// Package runtime serves ARCP, the Agent Runtime Control Protocol: it runs jobs for clients,
// keeps their events, and connects them with tools, credentials, people and a store.
//
// A program that embeds it needs a store, an auth.Set and tools:
//
//	st, err := pebble.Open("data", pebble.Options{})
//	rt, err := runtime.New(ctx, runtime.Config{Store: st, Auth: auth.NewSet(&credentials)})
//	err = rt.AddTool(weather)
//	http.Handle("/arcp", rt.Handler())
//
// Runtime.Shutdown ends it, and closes the store.
//
// Everything that a client was told is in the store first: after a crash, New on the same
// store goes on with the jobs there are, and clients resume their sessions without a gap. A
// client that is slow, or that floods, slows down only itself.
//
// This package is the public API and the wiring. What it consists of is in packages below
// internal; docs/architecture.md describes them.
package runtime
