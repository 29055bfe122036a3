package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/conformance"
)

// conformanceReports holds the flags for the reports of a run.
type conformanceReports struct {
	files   []string // values of --report
	junit   string
	verbose bool

	parsed []reportFile
}

// reportFile is a report that is written to a file.
type reportFile struct {
	flag   string
	format conformance.Format
	path   string
}

func (r *conformanceReports) addTo(f *pflag.FlagSet) {
	f.StringArrayVar(&r.files, "report", nil, "also write a report, as `FORMAT=FILE`; the formats are "+
		strings.Join(texts(conformance.Formats), ", ")+"; may be repeated")
	f.StringVar(&r.junit, "junit", "", "also write the report as JUnit XML to this file")
	f.BoolVarP(&r.verbose, "verbose", "v", false, "show what passed too, and the reasons and transcripts of failures")
}

// completeReport completes the format of --report, and then its file.
func completeReport(_ *cobra.Command, _ []string, prefix string) (words []string, _ cobra.ShellCompDirective) {
	if strings.Contains(prefix, "=") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	for _, format := range texts(conformance.Formats) {
		if strings.HasPrefix(format, prefix) {
			words = append(words, format+"=")
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// parse reads the values of the flags. It refuses files that cannot be written after the run.
func (r *conformanceReports) parse() error {
	if r.junit != "" {
		r.parsed = append(r.parsed, reportFile{"--junit", conformance.FormatJUnit, r.junit})
	}
	for _, value := range r.files {
		format, path, ok := strings.Cut(value, "=")
		if !ok || path == "" {
			return usagef("--report %s: give FORMAT=FILE, for example html=report.html", value)
		}
		if err := oneOf("report", format, texts(conformance.Formats)...); err != nil {
			return &exitError{exitUsage, err}
		}
		r.parsed = append(r.parsed, reportFile{"--report", conformance.Format(format), path})
	}
	paths := map[string]bool{}
	for _, f := range r.parsed {
		if dir, err := os.Stat(filepath.Dir(f.path)); err != nil || !dir.IsDir() {
			return usagef("%s %s: the directory %s does not exist", f.flag, f.path, filepath.Dir(f.path))
		}
		if paths[filepath.Clean(f.path)] {
			return usagef("%s %s: two reports have the same file", f.flag, f.path)
		}
		paths[filepath.Clean(f.path)] = true
	}
	return nil
}

// write writes the report to its files and to standard output.
func (r *conformanceReports) write(a *app, report *conformance.Report) error {
	for _, f := range r.parsed {
		if err := writeFile(f.path, func(w io.Writer) error { return conformance.Write(w, f.format, report) }); err != nil {
			return failf("write %s %s: %w", f.flag, f.path, cause(err))
		}
	}
	if a.json {
		var b bytes.Buffer
		if err := conformance.WriteJSON(&b, report); err != nil {
			return err
		}
		return a.printRaw(bytes.TrimSpace(b.Bytes()))
	}
	return conformance.WriteText(a.stdout, report, conformance.TextOptions{
		Color: isTerminal(a.stdout) && !noColor(), Verbose: r.verbose})
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
