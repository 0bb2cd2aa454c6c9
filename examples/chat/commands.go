package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// command is what a line that begins with / does.
type command struct {
	name, argument, help string
	run                  func(t *conversation, argument string, w io.Writer) error
}

// errQuit ends the program.
var errQuit = errors.New("quit")

// commands is a list, not a map, so that /help has an order.
func commands() []command {
	return []command{
		{"reset", "", "forget the conversation", (*conversation).reset},
		{"system", "TEXT", "the system turn from here on, none without TEXT; begins anew", (*conversation).setSystem},
		{"think", "on|off|auto", "the model's reasoning", (*conversation).setThinking},
		{"draft", "on|off", "drafting; the answers do not depend on it, their speed does", (*conversation).setDraft},
		{"save", "FILE", "write the conversation to a file", (*conversation).save},
		{"load", "FILE", "go on with a saved conversation", (*conversation).load},
		{"stats", "", "figures of the last answer", (*conversation).stats},
		{"help", "", "this list", (*conversation).help},
		{"quit", "", "end the program", func(*conversation, string, io.Writer) error { return errQuit }},
	}
}

// command runs a line that begins with /.
func (t *conversation) command(line string, w io.Writer) (quit bool, err error) {
	name, argument, _ := strings.Cut(strings.TrimPrefix(line, "/"), " ")
	list := commands()
	i := slices.IndexFunc(list, func(c command) bool { return c.name == strings.TrimSpace(name) })
	if i < 0 {
		return false, fmt.Errorf("there is no command /%s; /help lists them", strings.TrimSpace(name))
	}
	argument = strings.TrimSpace(argument)
	if c := list[i]; c.argument == "" && argument != "" {
		return false, fmt.Errorf("/%s takes no argument", c.name)
	}
	err = list[i].run(t, argument, w)
	if errors.Is(err, errQuit) {
		return true, nil
	}
	return false, err
}

func (t *conversation) help(_ string, w io.Writer) error {
	for _, c := range commands() {
		fmt.Fprintf(w, "%-20s %s\n", strings.TrimSpace("/"+c.name+" "+c.argument), c.help)
	}
	return nil
}

func (t *conversation) reset(_ string, w io.Writer) error {
	t.turns = nil
	fmt.Fprintln(w, "A new conversation.")
	return nil
}

func (t *conversation) setSystem(text string, w io.Writer) error {
	t.system = text
	return t.reset("", w)
}

func (t *conversation) setThinking(argument string, w io.Writer) error {
	think, err := parseSwitch(argument)
	if err != nil {
		return err
	}
	t.request.Thinking = think
	switch {
	case think == nil:
		fmt.Fprintln(w, "Reasoning as the chat template has it.")
	case *think:
		fmt.Fprintln(w, "Reasoning is on.")
	default:
		fmt.Fprintln(w, "Reasoning is off.")
	}
	return nil
}

func (t *conversation) setDraft(argument string, w io.Writer) error {
	switch off := t.engine.Info().DraftOff; {
	case argument != "on" && argument != "off":
		return fmt.Errorf("%q is neither on nor off", argument)
	case argument == "on" && off != "":
		return fmt.Errorf("there is no drafter: %s", off)
	}
	t.request.NoDraft = argument == "off"
	fmt.Fprintf(w, "Drafting is %s.\n", argument)
	return nil
}

func (t *conversation) save(name string, w io.Writer) error {
	if name == "" {
		return errors.New("/save needs the name of a file")
	}
	if err := save(name, saved{System: t.system, Messages: t.turns}); err != nil {
		return err
	}
	fmt.Fprintf(w, "%d messages saved in %s.\n", len(t.turns), name)
	return nil
}

func (t *conversation) load(name string, w io.Writer) error {
	if name == "" {
		return errors.New("/load needs the name of a file")
	}
	s, err := load(name)
	if err != nil {
		return err
	}
	t.system, t.turns = s.System, s.Messages
	fmt.Fprintf(w, "%d messages loaded from %s.\n", len(t.turns), name)
	return nil
}

func (t *conversation) stats(_ string, w io.Writer) error {
	s := t.last
	if s.CompletionTokens == 0 {
		fmt.Fprintln(w, "No answer yet.")
		return nil
	}
	fmt.Fprintf(w, "%d tokens, %.1f tok/s, %.2f tokens per cycle; prompt of %d tokens, %d of them reused, in %d ms\n",
		s.CompletionTokens, s.TokensPerSecond(), s.TokensPerCycle(), s.PromptTokens, s.CachedTokens, s.Prefill.Milliseconds())
	if s.DraftOff != "" {
		fmt.Fprintf(w, "No drafting: %s.\n", s.DraftOff)
	}
	return nil
}
