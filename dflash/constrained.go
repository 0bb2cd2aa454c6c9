package dflash

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/godflash/godflash/internal/grammar"
	"github.com/godflash/godflash/qwen/chat"
)

// formats are what an engine keeps of the forms that requests ask for: the
// vocabulary as a trie, made at the first of them, and a machine for each of the
// last few forms.
type formats struct {
	mu       sync.Mutex
	vocab    *grammar.Vocab
	machines []keptMachine // the last used one at the end
}

type keptMachine struct {
	key     [sha256.Size]byte
	machine *grammar.Machine
}

// maxMachines bounds the machines that are kept. What one keeps is bounded too.
const maxMachines = 8

// machine gives the machine of a form, made anew or kept from before.
func (e *Engine) machine(r grammar.Reply) (*grammar.Machine, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(text)
	f := &e.formats
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, kept := range f.machines {
		if kept.key == key {
			f.machines = append(append(f.machines[:i:i], f.machines[i+1:]...), kept)
			return kept.machine, nil
		}
	}
	form, err := grammar.Compile(r)
	if err != nil {
		return nil, err
	}
	if f.vocab == nil {
		f.vocab = e.vocabulary()
	}
	m := grammar.NewMachine(form, f.vocab)
	f.machines = append(f.machines, keptMachine{key, m})
	if n := len(f.machines); n > maxMachines {
		f.machines = f.machines[n-maxMachines:]
	}
	return m, nil
}

// vocabulary is the model's vocabulary, rows of the embedding without a token
// included.
func (e *Engine) vocabulary() *grammar.Vocab {
	ends := map[int]bool{}
	for _, id := range e.eos {
		ends[id] = true
	}
	return grammar.NewVocab(e.info.VocabSize, func(id int) grammar.Token {
		text := string(e.tok.Bytes(id))
		kind := grammar.Ordinary
		switch {
		case ends[id]:
			kind = grammar.End
		case e.tok.IsSpecial(id):
			kind = grammar.Control
		case e.tok.IsAdded(id):
			kind = grammar.Tag
		}
		return grammar.Token{Bytes: text, Kind: kind}
	})
}

// planFormat makes the constraint of a request's Format.
func (e *Engine) planFormat(p *plan, r *Request) error {
	if r.Format == nil {
		return nil
	}
	if r.Format.StrictTools && r.ToolChoice.None && !r.Format.JSON && r.Format.Schema == nil {
		return nil // there are no calls
	}
	reply, err := e.replyForm(p, r)
	if err != nil {
		return err
	}
	m, err := e.machine(reply)
	switch {
	case errors.Is(err, grammar.ErrUnsupported):
		return unsupported{fmt.Errorf("Format: %w", err)}
	case err != nil:
		return fmt.Errorf("%w: Format: %w", ErrRequest, err)
	}
	p.constrain(&formatted{machine: m, state: m.Start(), words: (e.info.VocabSize + 31) / 32})
	return nil
}

// unsupported is ErrUnsupported for an error whose text says so already.
type unsupported struct{ error }

func (e unsupported) Unwrap() error { return e.error }

func (unsupported) Is(target error) bool { return target == ErrUnsupported }

func (e *Engine) replyForm(p *plan, r *Request) (grammar.Reply, error) {
	f := r.Format
	reply := grammar.Reply{JSON: f.JSON, Schema: f.Schema}
	value := f.JSON || f.Schema != nil
	switch {
	case !value && !f.StrictTools:
		return reply, fmt.Errorf("%w: Format asks for nothing", ErrRequest)
	case f.JSON && f.Schema != nil:
		return reply, fmt.Errorf("%w: Format has both JSON and Schema", ErrRequest)
	case value && r.IgnoreEOS:
		return reply, fmt.Errorf("%w: IgnoreEOS with Format: after the value nothing but the end may come", ErrRequest)
	case value && len(e.eos) == 0:
		return reply, fmt.Errorf("%w: Format: the model in %s names no end-of-sequence token, which must end the value", ErrUnsupported, e.info.Dir)
	case r.Continue && !r.hasPrompt():
		return reply, fmt.Errorf("%w: Format when a reply goes on: how far it has got is not known", ErrUnsupported)
	case f.StrictTools && len(r.Tools) == 0:
		return reply, fmt.Errorf("%w: Format.StrictTools without Tools", ErrRequest)
	}
	if err := e.replyTools(&reply, r); err != nil {
		return reply, err
	}
	turn := e.lastTurn(p.ids)
	_, thinks := e.tok.TokenID("<think>")
	switch {
	case chat.OpensThinking(turn):
		reply.Thought = grammar.OpenThought
	case p.chat && thinks && !strings.Contains(turn, "</think>") && (r.thinks() == nil || *r.thinks()):
		reply.Thought = grammar.MayThink
	}
	return reply, nil
}

// replyTools says how the offered tools may be called.
func (e *Engine) replyTools(reply *grammar.Reply, r *Request) error {
	tools := r.offered()
	if len(tools) == 0 {
		return nil
	}
	if _, ok := e.template.CallBegin(""); !ok {
		if r.Format.StrictTools {
			return fmt.Errorf("%w: Format.StrictTools: the chat template in %s shows no form of a call", ErrUnsupported, e.info.Dir)
		}
		return nil
	}
	names, err := chat.ToolNames(tools)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	parameters, err := chat.ToolParameters(tools)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	for i, name := range names {
		reply.Tools = append(reply.Tools, grammar.Tool{Name: name, Parameters: parameters[i]})
	}
	switch {
	case !r.Format.StrictTools:
		reply.ToolForm = grammar.AnyCall
	case e.template.CallsInXML():
		reply.ToolForm = grammar.CallXML
	}
	return nil
}

// hasPrompt says that the request brings text of its own.
func (r *Request) hasPrompt() bool { return r.chatForm() || r.Text != "" || r.IDs != nil }

// formatted is the constraint of a Format. What it allows depends on the tokens
// chosen so far and on nothing else, so the text is the same with drafts and
// without.
type formatted struct {
	machine *grammar.Machine
	state   *grammar.State
	words   int
}

// free is false: within a few tokens a tag may come after which not every token
// is allowed.
func (f *formatted) free(int) bool { return false }

func (f *formatted) masks(drafts []int) ([]uint32, error) {
	bits := make([]uint32, 0, f.words*(len(drafts)+1))
	state := f.state
	for i := 0; ; i++ {
		row := f.machine.Mask(state)
		if row == nil {
			for range f.words {
				bits = append(bits, ^uint32(0))
			}
		}
		bits = append(bits, row...)
		if i == len(drafts) {
			return bits, nil
		}
		next, ok := f.machine.Advance(state, drafts[i])
		if !ok {
			return bits, nil
		}
		state = next
	}
}

func (f *formatted) advance(tokens []int) error {
	for _, id := range tokens {
		next, ok := f.machine.Advance(f.state, id)
		if !ok {
			return fmt.Errorf("%w: the format does not allow token %d, which had to come", ErrRequest, id)
		}
		f.state = next
	}
	return nil
}

// pick takes for each row the drafter's best guess that is allowed after those
// before it, and where none is, what the text can only go on with.
func (f *formatted) pick(candidates [][]int) []int {
	var drafts []int
	state := f.state
	for _, row := range candidates {
		i := slices.IndexFunc(row, func(id int) bool {
			next, ok := f.machine.Advance(state, id)
			if ok {
				state = next
			}
			return ok
		})
		if i >= 0 {
			drafts = append(drafts, row[i])
			continue
		}
		id, ok := f.machine.Forced(state)
		if !ok {
			break
		}
		drafts = append(drafts, id)
		state, _ = f.machine.Advance(state, id)
	}
	return drafts
}
