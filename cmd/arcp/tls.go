package main

import (
	"crypto/tls"
	"net"
	"sync/atomic"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// certificate is the server's own, replaced as a whole on reload.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// loadCertificate reads the pair of files; nil if TLS is off.
func loadCertificate(v *settings.Values) (*tls.Certificate, error) {
	cert, key := v.Text("tls-cert"), v.Text("tls-key")
	switch {
	case cert == "" && key == "":
		return nil, nil
	case key == "":
		return nil, usagef("%s needs --tls-key with the certificate's key", v.Where("tls-cert"))
	case cert == "":
		return nil, usagef("%s needs --tls-cert with the key's certificate", v.Where("tls-key"))
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, usagef("--tls-cert %s and --tls-key %s cannot be used together: %w", cert, key, err)
	}
	return &pair, nil
}

// config serves HTTP/1.1 only: a WebSocket begins with its upgrade.
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
