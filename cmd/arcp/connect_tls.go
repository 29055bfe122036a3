package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
)

// caFileEnv is the environment variable of --ca-file.
const caFileEnv = "ARCP_CA_FILE"

// trust sets the TLS configuration of tg from --ca-file or $ARCP_CA_FILE. The certificates in the
// file are trusted in addition to those of the system. A variable has no effect on a connection
// without TLS; a flag is refused.
func (tg *target) trust(a *app, u *url.URL) error {
	file, where := tg.caFile, "--ca-file"
	switch {
	case file != "" && u.Scheme != "wss":
		return usagef("--ca-file %s: the connection to %s has no TLS; use a wss:// URL, or leave out --ca-file", file, tg.url)
	case file == "":
		file, where = a.env(caFileEnv), "$"+caFileEnv
	}
	if file == "" || u.Scheme != "wss" {
		return nil
	}
	roots, err := readAuthorities(file)
	if err != nil {
		return usagef("%s %s: %w", where, file, err)
	}
	tg.caFile = file
	tg.tls = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	return nil
}

// readAuthorities returns the certificates of the system and those in a PEM file.
func readAuthorities(file string) (*x509.CertPool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, cause(err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("read the certificates of the system: %w", err)
	}
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("the file has no certificate in PEM")
	}
	return roots, nil
}

// httpClient returns a client for pages of the runtime. It trusts the same authorities as the session.
func (tg *target) httpClient() *http.Client {
	if tg.tls == nil {
		return http.DefaultClient
	}
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: tg.tls.Clone(), DisableKeepAlives: true,
	}}
}

// tlsProblem returns why no TLS connection to the runtime can be made and the remedy, or nil for other errors.
func (tg *target) tlsProblem(err error) error {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	if u, parseErr := url.Parse(tg.url); unknown && tg.tls != nil && parseErr == nil {
		return fmt.Errorf("the certificate of %s is signed by none of the authorities in %s: "+
			"give --ca-file FILE with the certificate of the authority that has signed it", u.Host, tg.caFile)
	}
	return tlsProblem(tg.url, err)
}

// tlsProblem returns why no TLS connection to an address can be made and the remedy, or nil for
// other errors.
func tlsProblem(address string, err error) error {
	host, scheme := address, ""
	if err == nil {
		return nil
	}
	if u, parseErr := url.Parse(address); parseErr == nil {
		host, scheme = u.Host, u.Scheme+"://"
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return fmt.Errorf("the certificate of %s is for %s: use this name in the URL", host, certificateNames(e.Certificate))
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return fmt.Errorf("the certificate of %s is not valid: %w", host, e)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return fmt.Errorf("the certificate of %s is signed by an unknown authority: give --ca-file FILE with the certificate of the authority", host)
	}
	if e, ok := errors.AsType[tls.AlertError](err); ok {
		return fmt.Errorf("%s refuses the TLS connection: %w", host, e)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return fmt.Errorf("%s answers without TLS: use a URL without TLS, with %s", host, strings.Replace(scheme, "s://", "://", 1))
	}
	if answersWithTLS(err) {
		return fmt.Errorf("%s answers with TLS: use a URL with TLS, with %s", host, strings.Replace(scheme, "://", "s://", 1))
	}
	return nil
}

// certificateNames returns the hosts of a certificate.
func certificateNames(c *x509.Certificate) string {
	names := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	if len(names) == 0 {
		return "no host"
	}
	return strings.Join(names, ", ")
}

// answersWithTLS reports whether an HTTP request was answered with a TLS record, or with the text of
// a server that expects TLS.
func answersWithTLS(err error) bool {
	text := err.Error()
	return strings.Contains(text, `malformed HTTP response "\x15\x03`) ||
		strings.Contains(text, "HTTP request to an HTTPS server") || // net/http
		strings.Contains(text, "plain HTTP request was sent to HTTPS port") // nginx
}
