package main

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// certificate is the certificate of the server. A reload replaces it.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// loadCertificate reads the certificate and key files; nil if TLS is off.
func loadCertificate(v *settings.Values) (*tls.Certificate, error) {
	cert, key := v.Text("tls-cert"), v.Text("tls-key")
	switch {
	case cert == "" && key == "":
		return nil, nil
	case key == "":
		return nil, usagef("%s needs --tls-key with the key of the certificate", v.Where("tls-cert"))
	case cert == "":
		return nil, usagef("%s needs --tls-cert with the certificate of the key", v.Where("tls-key"))
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, usagef("--tls-cert %s with --tls-key %s: %w", cert, key, err)
	}
	return &pair, nil
}

// expiry returns when the certificate expires, in seconds since 1970.
func (c *certificate) expiry() float64 { return seconds(c.current.Load().Leaf.NotAfter) }

// config allows only HTTP/1.1, which WebSocket upgrades need.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

func tlsListener(ln net.Listener, c *certificate) net.Listener {
	return tls.NewListener(ln, c.config())
}
