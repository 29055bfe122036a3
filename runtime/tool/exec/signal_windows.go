package exec

// signalName returns "": no signal ends a program on Windows.
func signalName(int) string { return "" }

// boundText returns "": Windows enforces no bounds with signals.
func boundText(int) string { return "" }
