package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func newArtifacts(a *app) *cobra.Command {
	cmd := newGroup("artifacts", "Store, read and delete artifacts")
	cmd.AddCommand(newArtifactsList(a), newArtifactsPut(a), newArtifactsGet(a), newArtifactsRemove(a))
	return cmd
}

func newArtifactsList(a *app) *cobra.Command {
	return newList(a, list[arcp.ArtifactObject]{
		short: "List your artifacts, the newest first",
		fetch: fromTool[arcp.ArtifactObject]("artifact.list"),
		columns: []column[arcp.ArtifactObject]{
			{"ARTIFACT", func(o *arcp.ArtifactObject) any { return o.ArtifactID }},
			{"MEDIA TYPE", func(o *arcp.ArtifactObject) any { return o.MediaType }},
			{"BYTES", func(o *arcp.ArtifactObject) any { return o.Size }},
			{"KEPT UNTIL", func(o *arcp.ArtifactObject) any { return clock(o.ExpiresAt) }},
		},
	})
}

func newArtifactsPut(a *app) *cobra.Command {
	var mediaType string
	var retain time.Duration
	cmd := &cobra.Command{
		Use:   "put FILE|-",
		Short: "Store a file, or standard input, as an artifact",
		Args:  argsBetween(1, 1),
	}
	t := addTarget(cmd)
	cmd.Flags().StringVar(&mediaType, "media-type", "", "media type; default: that of the file name, or application/octet-stream")
	addDuration(cmd.Flags(), &retain, "retain", 0, "time to keep the artifact, for example 24h; default: that of the runtime")
	cmd.RunE = a.reconnectingSession(t, func(ctx context.Context, c *client.Client, args []string) error {
		content, size, err := openContent(args[0], a.stdin)
		if err != nil {
			return err
		}
		defer content.Close()
		bar := newTransferBar(a.stderr, size)
		o, err := c.Artifacts().Put(ctx, client.PutArtifactParams{
			MediaType: cmp.Or(mediaType, mime.TypeByExtension(filepath.Ext(args[0])), "application/octet-stream"),
			Content:   io.TeeReader(content, bar),
			Retain:    retain,
		})
		bar.clear()
		if err != nil {
			return remoteError(err)
		}
		return a.printOutcome(o, o.ArtifactID, o.MediaType, o.Size, "bytes, kept until", clock(o.ExpiresAt))
	})
	return cmd
}

// openContent opens a file, or standard input for "-", whose size is 0: it is not known.
func openContent(name string, stdin io.Reader) (content io.ReadCloser, size int64, err error) {
	if name == "-" {
		return io.NopCloser(stdin), 0, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, usagef("read %s: %w", name, cause(err))
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = errors.New("is a directory")
	}
	if err != nil {
		return nil, 0, errors.Join(usagef("read %s: %w", name, cause(err)), f.Close())
	}
	return f, info.Size(), nil
}

func newArtifactsGet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ARTIFACT [FILE|-]",
		Short: "Write the content of an artifact to a file or to standard output",
		Long: "Writes the content of an artifact to FILE, or to standard output. The digest of the\n" +
			"content is verified. FILE is replaced when all content is there. An artifact over 4 MiB\n" +
			"is downloaded over HTTP if the runtime has the setting artifact-url.",
		Args: argsBetween(1, 2),
	}
	t := addTarget(cmd)
	t.downloads = true
	cmd.ValidArgsFunction = firstOnly(completeArtifacts(a, t))
	cmd.RunE = a.reconnectingSession(t, func(ctx context.Context, c *client.Client, args []string) error {
		file := "-"
		if len(args) == 2 {
			file = args[1]
		}
		if file == "-" && a.format != formatText {
			return usagef("-o %s: give a FILE; the content is on standard output", a.format)
		}
		r, err := c.Artifacts().Get(ctx, arcp.ArtifactID(args[0]))
		if err != nil {
			return remoteError(err)
		}
		defer func() { _ = r.Close() }() // returns nil
		bar := newTransferBar(a.stderr, int64(r.Size))
		err = writeContent(file, a.stdout, io.TeeReader(r, bar))
		bar.clear()
		if err != nil || file == "-" {
			return remoteError(err)
		}
		return a.printOutcome(r.ArtifactObject, r.ArtifactID, "is in", file)
	})
	return cmd
}

// writeContent writes content to standard output for "-", or to a file, which it replaces at the end.
func writeContent(file string, stdout io.Writer, content io.Reader) error {
	if file == "-" {
		_, err := io.Copy(stdout, content)
		return err
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(file), ".arcp-"+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return failf("write %s: %w", file, cause(err))
	}
	_, err = io.Copy(f, content)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// idOnly has the arguments of tools that need an artifact only.
type idOnly struct {
	ArtifactID arcp.ArtifactID `json:"artifact_id"`
}

func newArtifactsRemove(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "rm ARTIFACT…", Short: "Delete artifacts", Args: argsBetween(1, math.MaxInt)}
	t := addTarget(cmd)
	cmd.ValidArgsFunction = completeArtifacts(a, t)
	cmd.RunE = a.session(t, func(ctx context.Context, c *client.Client, args []string) error {
		var errs []error
		for _, id := range args {
			errs = append(errs, a.removeArtifact(ctx, c, arcp.ArtifactID(id)))
		}
		return errors.Join(errs...)
	})
	return cmd
}

func (a *app) removeArtifact(ctx context.Context, c *client.Client, id arcp.ArtifactID) error {
	got, err := ask[arcp.ArtifactReleased](ctx, c, "artifact.release", idOnly{id})
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", id, err)
	case !got.Released:
		return failf("no artifact %s", id)
	}
	return a.printOutcome(struct {
		idOnly
		arcp.ArtifactReleased
	}{idOnly{id}, got}, id, "is deleted")
}

// remoteError returns the refusal in the error of a job.
func remoteError(err error) error {
	if failure, ok := errors.AsType[*client.JobError](err); ok {
		return failure.RemoteError
	}
	return err
}

// transferBar shows how many bytes were written to it, if standard error is a terminal.
type transferBar struct {
	bar               *progressBar // nil: nothing is shown
	total, done, next int64        // bytes; next is the next number to show
}

// newTransferBar returns the bar of a number of bytes; 0: not known.
func newTransferBar(w io.Writer, total int64) *transferBar {
	b := &transferBar{total: total}
	if redraws(w) {
		b.bar = &progressBar{w: w}
	}
	return b
}

// Write implements io.Writer.
func (b *transferBar) Write(p []byte) (int, error) {
	b.done += int64(len(p))
	if b.bar == nil || b.done < b.next {
		return len(p), nil
	}
	b.next = b.done + max(b.total/100, 1<<20)
	progress := arcp.JobProgressPayload{Current: float64(b.done), Units: "bytes"}
	if b.total > 0 {
		progress.Total = new(float64(b.total))
	}
	b.bar.show(progress)
	return len(p), nil
}

func (b *transferBar) clear() { b.bar.clear() }
