package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// certificate is the certificate of the server. A reload replaces it.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

// loadCertificate reads the certificate and key files; nil if TLS is off.
func loadCertificate(v *settings.Values) (*tls.Certificate, error) {
	if v.Text("tls-cert") == "" && v.Text("tls-key") == "" {
		return nil, nil
	}
	cert, certErr := readPEM(v, "tls-cert", checkCertificate)
	key, keyErr := readPEM(v, "tls-key", checkPrivateKey)
	switch {
	case v.Text("tls-key") == "":
		keyErr = v.MistakeIn("tls-cert", fmt.Errorf("%s needs --tls-key with the key of the certificate", v.Where("tls-cert")))
	case v.Text("tls-cert") == "":
		certErr = v.MistakeIn("tls-key", fmt.Errorf("%s needs --tls-cert with the certificate of the key", v.Where("tls-key")))
	}
	if err := settings.Join(certErr, keyErr); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, v.MistakeIn("tls-key", fmt.Errorf("%s %s: %w", v.Where("tls-key"), v.Text("tls-key"), err))
	}
	return &pair, nil
}

// readPEM reads the file that a setting names and checks its content; nil if the setting is empty.
func readPEM(v *settings.Values, name string, check func(content []byte) error) ([]byte, error) {
	file := v.Text(name)
	if file == "" {
		return nil, nil
	}
	content, err := os.ReadFile(file)
	if err == nil {
		err = check(content)
	}
	if err != nil {
		return nil, v.MistakeIn(name, fmt.Errorf("%s %s: %w", v.Where(name), file, cause(err)))
	}
	return content, nil
}

// checkCertificate checks the first certificate of a PEM file.
func checkCertificate(content []byte) error {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			_, err := x509.ParseCertificate(block.Bytes)
			return err
		}
	}
	return errors.New("the file has no certificate in PEM")
}

// checkPrivateKey checks the first private key of a PEM file. The error does not repeat the key.
func checkPrivateKey(content []byte) error {
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue
		}
		_, err8 := x509.ParsePKCS8PrivateKey(block.Bytes)
		_, err1 := x509.ParsePKCS1PrivateKey(block.Bytes)
		_, errEC := x509.ParseECPrivateKey(block.Bytes)
		if err8 != nil && err1 != nil && errEC != nil {
			return errors.New("the private key is encrypted or damaged")
		}
		return nil
	}
	return errors.New("the file has no private key in PEM")
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
