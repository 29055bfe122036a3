package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
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
	mistakes = append(mistakes, err)
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
var provisionerError = regexp.MustCompile(`^provisioners\[(\d+)\](?:\.([a-z_-]+))?: (.*)$`)

// checkProvisioners checks the setting provisioners, and opens its files.
func checkProvisioners(v *settings.Values) error {
	raw := v.Block("provisioners")
	_, err := credential.ParseConfigs(raw)
	found := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		found = joined.Unwrap()
	}
	var mistakes []error
	for _, err := range found {
		if err != nil {
			mistakes = append(mistakes, provisionerMistake(v, err))
		}
	}
	items, _ := raw.([]any)
	for i, item := range items {
		entry := []string{"provisioners", strconv.Itoa(i)}
		list, err := credential.ParseConfigs([]any{item})
		if err != nil { // it is among the mistakes
			mistakes = append(mistakes, missingFiles(v, item, entry))
			continue
		}
		if _, err = list[0].Open(); err != nil {
			mistakes = append(mistakes, v.Mistake(settings.Position{Path: entry}, oneLine(err.Error())))
		}
	}
	return settings.Join(mistakes...)
}

// missingFiles returns a mistake for each file that an entry of provisioners names and that does not exist. It is for an
// entry with other mistakes, which cannot be opened.
func missingFiles(v *settings.Values, item any, entry []string) error {
	keys, _ := item.(map[string]any) // another item is a mistake
	var mistakes []error
	for _, key := range []string{"file", "token_file", "token-file"} {
		if name, _ := keys[key].(string); name != "" {
			if _, err := os.Stat(name); err != nil {
				mistakes = append(mistakes, v.Mistake(settings.Position{Path: append(slices.Clone(entry), key)}, oneLine(fmt.Sprintf("%s: %v", name, cause(err)))))
			}
		}
	}
	return settings.Join(mistakes...)
}

// provisionerMistake returns an error of credential.ParseConfigs at the position of the key that it names.
func provisionerMistake(v *settings.Values, err error) settings.Mistake {
	at := settings.Position{Path: []string{"provisioners"}}
	text := oneLine(err.Error())
	if parts := provisionerError.FindStringSubmatch(text); parts != nil {
		at.Path = append(at.Path, parts[1])
		if text = parts[3]; parts[2] != "" {
			at.Path = append(at.Path, parts[2])
		}
	}
	return v.Mistake(at, strings.TrimPrefix(text, "provisioners: "))
}

// mistakesOf returns the mistakes in an error of newConfiguration; nil for another error.
func mistakesOf(err error) settings.Mistakes {
	list, _ := errors.AsType[settings.Mistakes](err)
	return list
}
