// Package runtime serves ARCP, the Agent Runtime Control Protocol: it runs jobs for clients,
// stores their events, and connects them with tools, credentials, people and a store.
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
// Data is stored before a client is told about it. After a crash, New on the same store
// continues the stored jobs, and clients resume their sessions without a gap. A client that is
// slow, or that floods, slows down only itself.
//
// This package is the public API and the wiring. The packages below internal implement it;
// docs/architecture.md describes them.
package runtime
