// Package runtime serves ARCP, the Agent Runtime Control Protocol. It runs jobs for clients and
// stores their events. Jobs call tools, ask people, and use leased credentials.
//
// A program that embeds the runtime needs a store, an auth.Set and tools:
//
//	st, err := pebble.Open("data", pebble.Options{})
//	rt, err := runtime.New(ctx, runtime.Config{Store: st, Auth: auth.NewSet(&credentials)})
//	err = rt.AddTool(weather)
//	http.Handle("/arcp", rt.Handler())
//
// Runtime.Shutdown ends the runtime and closes the store.
//
// An event is durable before a client receives it. After a crash, New on the same store continues
// or fails the stored jobs, and clients resume their sessions without missing events. A client that
// is slow, or that floods, slows down only itself.
//
// This package is the public API, and connects the packages below internal to each other.
// docs/architecture.md describes them.
package runtime
