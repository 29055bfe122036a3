package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/runtime/credential"
)

// configuration is the checked configuration of a server: the settings, and what the files that they name say. It is
// immutable.
type configuration struct {
	values  *settings.Values
	maxData int64 // bound of the stored data in bytes; 0: none
	ends    endpoints
	auth    *auth.Config
	cert    *tls.Certificate // nil: no TLS
	tools   *toolConfig

	authDigest []byte // of the auth file, to tell whether it has changed
}

// newConfiguration checks the settings that load has returned with err, and everything that can be checked without
// opening the data directory or a listener. The error has every mistake and is a usage error.
func newConfiguration(v *settings.Values, err error, log zerolog.Logger) (*configuration, error) {
	if v == nil {
		return nil, usageOf(err)
	}
	c := &configuration{values: v, ends: endpointsOf(v), authDigest: digest(v.Text("auth-file"))}
	mistakes := []error{err, c.ends.check(v), checkProvisioners(v), checkArtifactStorage(v)}
	add := func(name string, err error) {
		if err != nil {
			mistakes = append(mistakes, v.MistakeIn(name, err))
		}
	}
	c.maxData, err = maxData(v)
	add("max-data", err)
	c.auth, err = loadAuth(v, isLoopback(c.ends.listen))
	mistakes = append(mistakes, err)
	c.cert, err = loadCertificate(v)
	add("tls-cert", err)
	if file := v.Text("secret-key-file"); file != "" {
		if _, err := credential.LoadSealer(file); err != nil {
			add("secret-key-file", fmt.Errorf("%s: %w", v.Where("secret-key-file"), err))
		}
	}
	c.tools, err = loadTools(v, log)
	mistakes = append(mistakes, err)
	if err := settings.Join(mistakes...); err != nil {
		return nil, usageOf(err)
	}
	return c, nil
}

// checkArtifactStorage checks the settings of artifacts in a bucket.
func checkArtifactStorage(v *settings.Values) error {
	bucket, err := bucketOf(v)
	var mistakes []error
	if err != nil {
		mistakes = append(mistakes, v.MistakeIn("artifact-endpoint", err))
	}
	if bucket != nil && v.Text("data") == memory {
		mistakes = append(mistakes, v.MistakeIn("artifact-bucket", errBucketInMemory(v)))
	}
	if _, _, err := bucketCredentials(v); err != nil {
		mistakes = append(mistakes, v.MistakeIn("artifact-secret-key", err))
	}
	return settings.Join(mistakes...)
}

// provisionerError is an error of credential.ParseConfigs about one entry: index, key and text.
var provisionerError = regexp.MustCompile(`^provisioners\[\d+\](?:\.([a-z_-]+))?: (.*)$`)

// checkProvisioners checks the setting provisioners, and opens its files.
func checkProvisioners(v *settings.Values) error {
	raw := v.Block("provisioners")
	items, _ := raw.([]any)
	var mistakes []error
	for i, item := range items {
		list, err := credential.ParseConfigs([]any{item})
		if err == nil {
			_, err = list[0].Open()
		}
		if err != nil {
			mistakes = append(mistakes, provisionerMistake(v, i, err))
		}
	}
	if _, err := credential.ParseConfigs(raw); err != nil && len(mistakes) == 0 { // about the list
		mistakes = append(mistakes, v.MistakeIn("provisioners", fmt.Errorf("%s: %w", v.Where("provisioners"), err)))
	}
	return settings.Join(mistakes...)
}

// provisionerMistake returns the error of an entry at the position of the key that the error names.
func provisionerMistake(v *settings.Values, index int, err error) settings.Mistake {
	at := settings.Position{Path: []string{"provisioners", fmt.Sprint(index)}}
	text := strings.Join(strings.Fields(err.Error()), " ")
	if parts := provisionerError.FindStringSubmatch(text); parts != nil {
		if text = parts[2]; parts[1] != "" {
			at.Path = append(at.Path, parts[1])
		}
	}
	return v.Mistake(at, text)
}

// mistakesOf returns the mistakes in an error of newConfiguration; nil for another error.
func mistakesOf(err error) settings.Mistakes {
	list, _ := errors.AsType[settings.Mistakes](err)
	return list
}
