package main

import (
	"fmt"
	"net/http"
	"time"
)

// Bounds of the checks of a server.
const (
	lowDisk         = 4                   // times --min-free
	certificateSoon = 14 * 24 * time.Hour // before the end of a certificate
	maxClockSkew    = 10 * time.Second
	unknownMinFree  = 512 << 20 // default of --min-free, in bytes
)

// disk finds a disk that is nearly full, and commits that have failed. A server without a data directory, or with a
// --min-free of 0, does not report the free bytes.
func (d *diagnosis) disk(g gauges) {
	const check = "disk"
	free, known := g["arcp_store_free_bytes"][""]
	least, set := g["arcp_store_min_free_bytes"][""]
	if !set { // the setting of an older server is not known
		least = unknownMinFree
	}
	space := fmt.Sprintf("%s are free; below the %s of --min-free no jobs are accepted", binarySize(free), binarySize(least))
	const remedy = "free space on the disk of --data"
	switch failed := g["arcp_store_commit_errors_total"][""]; {
	case failed > 0:
		d.add(check, statusProblem, "see the server's log; restart the server once the cause is mended", "commits that failed: %.0f", failed)
	case !known:
	case free < least:
		d.add(check, statusProblem, remedy, "%s", space)
	case free < lowDisk*least:
		d.add(check, statusWarning, remedy, "%s", space)
	default:
		d.add(check, statusOK, "", "%s", space)
	}
}

// certificate finds a certificate that ends soon, or has ended. A server without TLS has none.
func (d *diagnosis) certificate(g gauges, now time.Time) {
	const check = "certificate"
	seconds, known := g["arcp_certificate_expiry_timestamp_seconds"][""]
	if !known {
		return
	}
	const renew = "replace the files of --tls-cert and --tls-key, and send SIGHUP"
	end := time.Unix(int64(seconds), 0)
	switch left := end.Sub(now); {
	case left <= 0:
		d.add(check, statusProblem, renew, "the certificate expired at %s", clock(end))
	case left < certificateSoon:
		d.add(check, statusWarning, renew, "the certificate expires at %s", clock(end))
	default:
		d.add(check, statusOK, "", "the certificate expires at %s", clock(end))
	}
}

// reload finds a configuration that the last SIGHUP has not applied.
func (d *diagnosis) reload(g gauges) {
	if ok, known := g["arcp_config_last_reload_successful"][""]; known && ok == 0 {
		d.add("reload", statusProblem, "run arcp config check, and send SIGHUP again", "the last reload of the configuration failed")
	}
}

// clock compares the clock of the server with the one of this machine, which showed now when date was sent. Leases, tokens and schedules depend on both.
func (d *diagnosis) clock(date string, now time.Time) {
	const check = "clock"
	server, err := http.ParseTime(date)
	if err != nil {
		d.add(check, statusUnchecked, "", "the admin listener sends no date")
		return
	}
	skew := server.Sub(now.Truncate(time.Second)) // the header has whole seconds
	if skew.Abs() > maxClockSkew {
		d.add(check, statusWarning, "synchronise the clocks: tokens, leases and schedules depend on them",
			"the clock of the server differs from this one by %s", skew.Round(time.Second))
		return
	}
	d.add(check, statusOK, "", "the clocks of the server and of this machine agree")
}
