package runtime

import "github.com/arcpd/arcpd/runtime/internal/registry"

// Cleanup registers the Cleaner of one provider and resource type. See Config.Handlers.
type Cleanup = registry.Registration

// Cleaner removes leased resources of one kind. Its methods may be called concurrently.
type Cleaner = registry.Handler

// CleanerFunc makes a Cleaner of a function.
type CleanerFunc = registry.HandlerFunc

// LeasedResource is a resource with its lease, as a Cleaner receives it.
type LeasedResource = registry.Lease
