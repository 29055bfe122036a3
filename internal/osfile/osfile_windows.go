package osfile

// hasBits reports whether the permission bits of a file are those of the file system.
const hasBits = false

// RenamesOpen reports whether a file that is open can get another name.
const RenamesOpen = false

// SyncDir does nothing: Windows cannot sync a directory. NTFS has a journal of the names.
func SyncDir(string) error { return nil }
