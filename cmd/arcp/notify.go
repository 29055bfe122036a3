package main

import (
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/rs/zerolog"
)

// notifySystemd sends a state to the service manager, which is systemd with Type=notify. Without
// $NOTIFY_SOCKET it does nothing. A failure is logged.
func notifySystemd(log zerolog.Logger, state string) {
	const keepEnvironment = false
	if _, err := daemon.SdNotify(keepEnvironment, state); err != nil {
		log.Warn().Err(err).Str("state", state).Msg("the service manager was not notified")
	}
}

// notifyReload tells the service manager that a reload begins. READY=1 ends it.
func notifyReload(log zerolog.Logger) {
	state := daemon.SdNotifyReloading
	if usec := daemon.SdNotifyMonotonicUsec(); usec != "" {
		state += "\n" + usec
	}
	notifySystemd(log, state)
}
