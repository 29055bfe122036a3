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
	a     *app
	c     *client.Client
	lines chan string // lines of standard input; closed at its end
	turn  chan struct{}
	group sync.WaitGroup

	mu     sync.Mutex
	open   map[arcp.MessageID]context.CancelFunc
	asking arcp.MessageID // the current question
	prompt string         // prompt on the last line of the terminal; empty: none
}

func (a *app) newConsole(c *client.Client) *console {
	p := &console{a: a, c: c, lines: make(chan string), turn: make(chan struct{}, 1), open: make(map[arcp.MessageID]context.CancelFunc)}
	go p.read()
	return p
}

// read reads standard input to its end. It usually ends with the process.
func (p *console) read() {
	defer close(p.lines)
	r := bufio.NewReader(p.a.stdin)
	for {
		line, err := r.ReadString('\n')
		if line = strings.TrimSpace(line); err == nil || line != "" {
			p.lines <- line
		}
		if err != nil {
			return
		}
	}
}

// event prints an event, and asks it if it is a question.
func (p *console) event(ctx context.Context, env *arcp.Envelope, show func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prompt != "" {
		fmt.Fprintln(p.a.stderr)
	}
	show()
	if env.Type.Terminal() || env.Type == arcp.HumanInputCancelled && env.CorrelationID == p.asking {
		p.prompt = "" // the question is closed
	}
	if p.prompt != "" {
		fmt.Fprint(p.a.stderr, p.prompt)
	}
	if env.Type == arcp.HumanInputCancelled {
		if cancel := p.open[env.CorrelationID]; cancel != nil {
			cancel()
		}
	}
	if ask := p.asker(env); ask != nil {
		ctx, cancel := context.WithCancel(ctx)
		p.open[env.ID] = cancel
		p.group.Go(func() {
			defer cancel()
			p.ask(ctx, env.ID, answerCommand(env), ask)
		})
	}
}

// stop cancels the open questions and waits for their goroutines.
func (p *console) stop() {
	p.mu.Lock()
	for _, cancel := range p.open {
		cancel()
	}
	p.mu.Unlock()
	p.group.Wait()
}

// ask asks a question until an answer is accepted. command is the command that answers the question.
func (p *console) ask(ctx context.Context, id arcp.MessageID, command string, ask func(context.Context) error) {
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-p.turn }()
	p.mu.Lock()
	p.asking = id
	p.mu.Unlock()
	for {
		err := ask(ctx)
		refusal, refused := errors.AsType[*client.RemoteError](err)
		switch {
		case err == nil, ctx.Err() != nil:
			p.clear()
			return
		case errors.Is(err, io.EOF):
			p.say("not answered; answer with `" + command + "`")
			return
		case refused && refusal.Code != arcp.CodeInvalidArgument:
			p.say("the answer was refused: " + readable(err))
			return
		case refused:
			p.say("the answer is invalid: " + refusal.Message)
		default:
			p.say(err.Error())
		}
	}
}

// say prints a message of the console.
func (p *console) say(text string) {
	p.clear()
	fmt.Fprintln(p.a.stderr, oneLine(text))
}

// clear ends the line with the prompt.
func (p *console) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.prompt != "" {
		p.prompt = ""
		fmt.Fprintln(p.a.stderr)
	}
}

// line prints the prompt and reads a line. The error is io.EOF at the end of standard input.
func (p *console) line(ctx context.Context, prompt string) (string, error) {
	p.mu.Lock()
	p.prompt = oneLine(prompt)
	fmt.Fprint(p.a.stderr, p.prompt)
	p.mu.Unlock()
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", io.EOF
		}
		p.mu.Lock()
		p.prompt = "" // the user has ended the line
		p.mu.Unlock()
		return line, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// asker returns the function that asks the question of the event; nil if the event is not a question.
func (p *console) asker(env *arcp.Envelope) func(context.Context) error {
	id := env.ID
	switch env.Type {
	case arcp.PermissionRequest:
		q := payload[arcp.PermissionRequestPayload](env)
		return func(ctx context.Context) error { return p.permission(ctx, id, &q) }
	case arcp.HumanInputRequest:
		q := payload[arcp.HumanInputRequestPayload](env)
		return func(ctx context.Context) error { return p.input(ctx, id, &q) }
	case arcp.HumanChoiceRequest:
		q := payload[arcp.HumanChoiceRequestPayload](env)
		return func(ctx context.Context) error { return p.choice(ctx, id, &q) }
	}
	return nil
}

// permission grants after the answer yes, and denies after any other.
func (p *console) permission(ctx context.Context, id arcp.MessageID, q *arcp.PermissionRequestPayload) error {
	line, err := p.line(ctx, "grant "+requested(q).String()+"? [y/N] ")
	if err != nil {
		return err
	}
	switch strings.ToLower(line) {
	case "y", "yes":
		grant := client.GrantParams{Permission: q.Permission, Resource: q.Resource, Operation: q.Operation}
		if q.RequestedLeaseSeconds != nil {
			grant.For = time.Duration(min(*q.RequestedLeaseSeconds, math.MaxInt64/uint64(time.Second))) * time.Second
		}
		_, err := p.c.Grant(ctx, id, grant)
		return err
	}
	return p.c.Deny(ctx, id, client.DenyParams{Permission: q.Permission, Reason: "denied"})
}

// input reads a line of JSON. The runtime validates it.
func (p *console) input(ctx context.Context, id arcp.MessageID, q *arcp.HumanInputRequestPayload) error {
	prompt := "JSON: "
	if schema := compact(q.ResponseSchema); schema != "" {
		prompt = "JSON like " + schema + ": "
	}
	if len(q.Default) > 0 {
		prompt = "[" + string(q.Default) + "] " + prompt
	}
	line, err := p.line(ctx, prompt)
	if err != nil {
		return err
	}
	value := arcp.Raw(line)
	if line == "" && len(q.Default) > 0 {
		value = q.Default
	}
	if !value.IsValid() {
		return fmt.Errorf(`not JSON; write a text with quotes: %s`, arcp.AppendString(nil, line))
	}
	return p.c.RespondInput(ctx, id, value)
}

// choice reads the number or the id of an option.
func (p *console) choice(ctx context.Context, id arcp.MessageID, q *arcp.HumanChoiceRequestPayload) error {
	for i, o := range q.Options {
		fmt.Fprintf(p.a.stderr, "%4d  %s\n", i+1, optionNames([]arcp.Option{{ID: oneLine(o.ID), Label: oneLine(o.Label)}}))
	}
	line, err := p.line(ctx, fmt.Sprintf("choose 1 to %d: ", len(q.Options)))
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(line); err == nil && n >= 1 && n <= len(q.Options) {
		line = q.Options[n-1].ID
	}
	return p.c.RespondChoice(ctx, id, line)
}
