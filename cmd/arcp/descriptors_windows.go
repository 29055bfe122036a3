package main

// maxDescriptors returns false: Windows bounds handles by memory only.
func maxDescriptors() (n int, ok bool) { return 0, false }
