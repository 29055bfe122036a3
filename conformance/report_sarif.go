package conformance

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// The members of SARIF 2.1.0 that WriteSARIF uses.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool        sarifTool         `json:"tool"`
		Invocations []sarifInvocation `json:"invocations"`
		Results     []sarifResult     `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID            string          `json:"id"`
		Short         sarifText       `json:"shortDescription"`
		Full          sarifText       `json:"fullDescription"`
		Configuration sarifRuleConfig `json:"defaultConfiguration"`
	}
	sarifRuleConfig struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifInvocation struct {
		Successful bool   `json:"executionSuccessful"`
		Start      string `json:"startTimeUtc"`
		End        string `json:"endTimeUtc"`
	}
	sarifResult struct {
		RuleID       string            `json:"ruleId"`
		RuleIndex    int               `json:"ruleIndex"`
		Level        string            `json:"level"`
		Message      sarifText         `json:"message"`
		Locations    []sarifLocation   `json:"locations"`
		Fingerprints map[string]string `json:"partialFingerprints"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

// sarifLevel returns the level of a failed check.
func sarifLevel(l Level) string {
	switch l {
	case Must:
		return "error"
	case Should:
		return "warning"
	}
	return "note"
}

// WriteSARIF writes a report as SARIF 2.1.0: a rule for each check, and a result for each failed one.
// The location of a result is the script of its check, because the source of the server is unknown.
func WriteSARIF(w io.Writer, r *Report) error {
	run := sarifRun{Tool: sarifTool{sarifDriver{Name: "arcp conformance", Rules: []sarifRule{}}}, Results: []sarifResult{},
		Invocations: []sarifInvocation{{Successful: true, Start: r.Started.UTC().Format(time.RFC3339),
			End: r.Started.Add(time.Duration(r.Duration)).UTC().Format(time.RFC3339)}}}
	for i := range r.Results {
		res := &r.Results[i]
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: res.ID, Short: sarifText{res.Title},
			Full:          sarifText{fmt.Sprintf("%s: %s (%s)", res.Section, res.Title, strings.ToUpper(string(res.Level)))},
			Configuration: sarifRuleConfig{sarifLevel(res.Level)}})
		if res.Status == Failed {
			run.Results = append(run.Results, sarifOf(res, i))
		}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

func sarifOf(res *Result, rule int) sarifResult {
	file, line := "go_checks.go", 1
	if c, ok := FindCheck(res.ID); ok {
		switch src := c.Source(); {
		case src.Frames:
			file = "frame_rules.go"
		case src.Script != "":
			file, line = src.File, src.Line
		}
	}
	sum := sha256.Sum256([]byte(res.ID + "\n" + res.rule() + "\n" + messageID.ReplaceAllString(res.observation(), "")))
	return sarifResult{RuleID: res.ID, RuleIndex: rule, Level: sarifLevel(res.Level), Message: sarifText{res.Finding()},
		Locations: []sarifLocation{{Physical: sarifPhysical{sarifArtifact{"conformance/" + file}, sarifRegion{line}},
			Logical: []sarifLogical{{Name: res.ID, Kind: "function"}}}},
		Fingerprints: map[string]string{"finding/v1": fmt.Sprintf("%x", sum[:16])}}
}
