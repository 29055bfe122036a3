//go:build linux

package main

import (
	"net"
	"syscall"
	"testing"

	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// Where no heartbeat notices that a peer has vanished, TCP does.
func TestKeepAliveIsOnWithoutHeartbeats(t *testing.T) {
	for heartbeat, want := range map[string]int{"0": 1, "30s": 0} {
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		settings.AddFlags(flags, nil)
		if err := flags.Parse([]string{"--heartbeat", heartbeat}); err != nil {
			t.Fatal(err)
		}
		v, err := settings.Load(settings.Input{Flags: flags, Environ: []string{}, Search: []string{}})
		if err != nil {
			t.Fatal(err)
		}
		ln, err := openListener(t.Context(), v, "listen", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		conn, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		got := -1
		if err := raw.Control(func(fd uintptr) {
			got, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
		}); err != nil {
			t.Fatal(err)
		}
		if err != nil || got != want {
			t.Errorf("with --heartbeat %s SO_KEEPALIVE is %d (%v), want %d", heartbeat, got, err, want)
		}
	}
}
