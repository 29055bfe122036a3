package transport_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/arcpd/arcpd/transport"
)

// Two ends of a connection in memory, for tests.
func ExamplePipe() {
	near, far := transport.Pipe(transport.Limits{})
	if err := near.Write([]byte(`{"hello":"far"}`)); err != nil {
		fmt.Println(err)
	}
	if err := near.Flush(); err != nil {
		fmt.Println(err)
	}
	frame, err := far.Read()
	fmt.Println(string(frame), err)
	// Output: {"hello":"far"} <nil>
}

// A WebSocket server that returns each frame, and a client of it.
func ExampleUpgrader_Handler() {
	echo := func(c transport.Conn) {
		frame, err := c.Read()
		if err == nil {
			err = c.Write(frame)
		}
		if err == nil {
			err = c.Close(transport.CloseNormal, "done")
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	web := httptest.NewServer(new(transport.Upgrader).Handler(echo))
	defer web.Close()

	c, err := transport.Dial(context.Background(), "ws"+strings.TrimPrefix(web.URL, "http"), transport.DialOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Abort()
	if err := c.Write([]byte(`"hello"`)); err != nil {
		fmt.Println(err)
	}
	if err := c.Flush(); err != nil {
		fmt.Println(err)
	}
	frame, err := c.Read()
	fmt.Println(string(frame), err)
	// Output: "hello" <nil>
}

// A gate bounds the connections whose peers have not authenticated.
func ExampleGate() {
	gate := transport.NewGate(transport.GateLimits{Unauthenticated: 1}, nil)
	first, err := gate.Enter("192.0.2.1")
	fmt.Println(err)
	_, err = gate.Enter("192.0.2.2")
	fmt.Println(err)
	first.Authenticated()
	_, err = gate.Enter("192.0.2.2")
	fmt.Println(err)
	// Output:
	// <nil>
	// the limit of 1 connections that have not authenticated is reached
	// <nil>
}
