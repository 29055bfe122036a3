package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// console asks the questions of a job on the terminal, one after the other. The goroutine that reads the events of
// the job calls its methods. Each question has its own goroutine.
type console struct {
	a      *app
	client *client.Client
	lines  chan string // lines of standard input; closed at its end
	turn   chan struct{}
	group  sync.WaitGroup

	mu     sync.Mutex
	open   map[arcp.MessageID]context.CancelFunc
	asking arcp.MessageID // the current question
	prompt string         // prompt on the last line of the terminal; empty: none
}

func (a *app) newConsole(cl *client.Client) *console {
	c := &console{a: a, client: cl, lines: make(chan string), turn: make(chan struct{}, 1), open: make(map[arcp.MessageID]context.CancelFunc)}
	go c.read()
	return c
}

// read reads standard input to its end. It usually ends with the process.
func (c *console) read() {
	defer close(c.lines)
	r := bufio.NewReader(c.a.stdin)
	for {
		line, err := r.ReadString('\n')
		if line = strings.TrimSpace(line); err == nil || line != "" {
			c.lines <- line
		}
		if err != nil {
			return
		}
	}
}

// event prints an event, and asks it if it is a question.
func (c *console) event(ctx context.Context, env *arcp.Envelope, show func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prompt != "" {
		fmt.Fprintln(c.a.stderr)
	}
	show()
	if env.Type.Terminal() || env.Type == arcp.HumanInputCancelled && env.CorrelationID == c.asking {
		c.prompt = "" // the question is closed
	}
	if c.prompt != "" {
		fmt.Fprint(c.a.stderr, c.prompt)
	}
	if env.Type == arcp.HumanInputCancelled {
		if cancel := c.open[env.CorrelationID]; cancel != nil {
			cancel()
		}
	}
	if ask := c.asker(env); ask != nil {
		ctx, cancel := context.WithCancel(ctx)
		c.open[env.ID] = cancel
		c.group.Go(func() {
			defer cancel()
			c.ask(ctx, env.ID, answerCommand(env), ask)
		})
	}
}

// stop cancels the open questions and waits for their goroutines.
func (c *console) stop() {
	c.mu.Lock()
	for _, cancel := range c.open {
		cancel()
	}
	c.mu.Unlock()
	c.group.Wait()
}

// ask asks a question until an answer is accepted. command is the command that answers the question.
func (c *console) ask(ctx context.Context, id arcp.MessageID, command string, ask func(context.Context) error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-c.turn }()
	c.mu.Lock()
	c.asking = id
	c.mu.Unlock()
	for {
		err := ask(ctx)
		refusal, refused := errors.AsType[*client.RemoteError](err)
		switch {
		case err == nil, ctx.Err() != nil:
			c.clear()
			return
		case errors.Is(err, io.EOF):
			c.say("not answered; answer with `" + command + "`")
			return
		case refused && refusal.Code != arcp.CodeInvalidArgument:
			c.say("the answer was refused: " + readable(err))
			return
		case refused:
			c.say("the answer is invalid: " + refusal.Message)
		default:
			c.say(err.Error())
		}
	}
}

// say prints a message of the console.
func (c *console) say(text string) {
	c.clear()
	fmt.Fprintln(c.a.stderr, oneLine(text))
}

// clear ends the line with the prompt.
func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.prompt != "" {
		c.prompt = ""
		fmt.Fprintln(c.a.stderr)
	}
}

// line prints the prompt and reads a line. The error is io.EOF at the end of standard input.
func (c *console) line(ctx context.Context, prompt string) (string, error) {
	c.mu.Lock()
	c.prompt = oneLine(prompt)
	fmt.Fprint(c.a.stderr, c.prompt)
	c.mu.Unlock()
	select {
	case line, ok := <-c.lines:
		if !ok {
			return "", io.EOF
		}
		c.mu.Lock()
		c.prompt = "" // the user has ended the line
		c.mu.Unlock()
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// asker returns the function that asks the question of the event; nil if the event is not a question.
func (c *console) asker(env *arcp.Envelope) func(context.Context) error {
	id := env.ID
	switch env.Type {
	case arcp.PermissionRequest:
		q := payload[arcp.PermissionRequestPayload](env)
		return func(ctx context.Context) error { return c.permission(ctx, id, &q) }
	case arcp.HumanInputRequest:
		q := payload[arcp.HumanInputRequestPayload](env)
		return func(ctx context.Context) error { return c.input(ctx, id, &q) }
	case arcp.HumanChoiceRequest:
		q := payload[arcp.HumanChoiceRequestPayload](env)
		return func(ctx context.Context) error { return c.choice(ctx, id, &q) }
	}
	return nil
}

// permission grants after the answer yes, and denies after the answer no or an empty line. Another answer is an error.
func (c *console) permission(ctx context.Context, id arcp.MessageID, q *arcp.PermissionRequestPayload) error {
	line, err := c.line(ctx, "grant "+requested(q).String()+"? [y/N] ")
	if err != nil {
		return err
	}
	switch strings.ToLower(line) {
	case "y", "yes":
		grant := client.GrantParams{Permission: q.Permission, Resource: q.Resource, Operation: q.Operation}
		if q.RequestedLeaseSeconds != nil {
			grant.For = time.Duration(min(*q.RequestedLeaseSeconds, math.MaxInt64/uint64(time.Second))) * time.Second
		}
		_, err := c.client.Grant(ctx, id, grant)
		return err
	case "n", "no", "":
	default:
		return fmt.Errorf("%q is not an answer: type y to grant, or n to deny", line)
	}
	return c.client.Deny(ctx, id, client.DenyParams{Permission: q.Permission, Reason: "denied"})
}

// input reads a line of JSON, or of text if the schema wants a string. The runtime validates it.
func (c *console) input(ctx context.Context, id arcp.MessageID, q *arcp.HumanInputRequestPayload) error {
	schema, isText := compact(q.ResponseSchema), wantsText(q.ResponseSchema)
	prompt := "JSON: "
	switch {
	case isText:
		prompt = "text: "
	case schema != "":
		prompt = "JSON like " + schema + ": "
	}
	if len(q.Default) > 0 {
		prompt = "[" + string(q.Default) + "] " + prompt
	}
	line, err := c.line(ctx, prompt)
	if err != nil {
		return err
	}
	value := arcp.Raw(line)
	switch {
	case line == "" && len(q.Default) > 0:
		value = q.Default
	case isText && line != "" && !strings.HasPrefix(line, `"`):
		value = arcp.AppendString(nil, line)
	}
	switch {
	case value.IsValid():
		return c.client.RespondInput(ctx, id, value)
	case schema != "":
		return fmt.Errorf("not JSON; write a value like %s", schema)
	}
	return fmt.Errorf("not JSON; write a text with quotes: %s", arcp.AppendString(nil, line))
}

// wantsText reports whether a schema wants a string.
func wantsText(schema arcp.Raw) bool {
	var s struct {
		Type string `json:"type"`
	}
	return arcp.Unmarshal(schema, &s) == nil && s.Type == "string" // another form of type wants JSON
}

// choice reads the number or the id of an option.
func (c *console) choice(ctx context.Context, id arcp.MessageID, q *arcp.HumanChoiceRequestPayload) error {
	for i, o := range q.Options {
		fmt.Fprintf(c.a.stderr, "%4d  %s\n", i+1, optionNames([]arcp.Option{{ID: oneLine(o.ID), Label: oneLine(o.Label)}}))
	}
	line, err := c.line(ctx, fmt.Sprintf("choose 1 to %d: ", len(q.Options)))
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(q.Options) {
		line = q.Options[n-1].ID
	}
	return c.client.RespondChoice(ctx, id, line)
}
