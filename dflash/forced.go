package dflash

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/godflash/godflash/internal/nn"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen/chat"
)

// Forced tokens are those that nobody chose: the beginning of a call that
// ToolChoice asks for, and the end of a thought that has used up its budget.
// They are run like a prompt's, in one pass, while no block is in flight, and
// handed out like the model's.

// checkChoice refuses a ToolChoice that contradicts itself or the tools.
func (r *Request) checkChoice() error {
	c := r.ToolChoice
	names, err := chat.ToolNames(r.Tools)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrRequest, err)
	case c == ToolChoice{}:
		return nil
	case !r.chatForm():
		return fmt.Errorf("%w: ToolChoice goes with Tools and needs Prompt or Messages", ErrRequest)
	case c.None && (c.Required || c.Name != ""):
		return fmt.Errorf("%w: ToolChoice says None and asks for a call", ErrRequest)
	case c.None:
		return nil
	case len(names) == 0:
		return fmt.Errorf("%w: ToolChoice asks for a call, and there are no Tools", ErrRequest)
	case c.Name != "" && !slices.Contains(names, c.Name):
		return fmt.Errorf("%w: ToolChoice names %q, the tools are %q", ErrRequest, c.Name, names)
	case strings.ContainsAny(c.Name, "<>\n"):
		return fmt.Errorf("%w: ToolChoice names %q, whose name is no text for a tag", ErrRequest, c.Name)
	case r.Thinking != nil && *r.Thinking:
		return fmt.Errorf("%w: ToolChoice begins the reply with a call, which leaves no room for Thinking", ErrRequest)
	}
	return nil
}

// calls says that the reply must begin with a call.
func (c ToolChoice) calls() bool { return c.Required || c.Name != "" }

// offered are the tools that the template shows.
func (r *Request) offered() []json.RawMessage {
	if r.ToolChoice.None {
		return nil
	}
	return r.Tools
}

// thinks is the template's enable_thinking.
func (r *Request) thinks() *bool {
	if r.Thinking == nil && r.ToolChoice.calls() {
		return new(false)
	}
	return r.Thinking
}

// callIDs is how the reply begins that ToolChoice asks for.
func (e *Engine) callIDs(r *Request, thinking bool) ([]int, error) {
	name := r.ToolChoice.Name
	if names, err := chat.ToolNames(r.Tools); err == nil && len(names) == 1 {
		name = names[0]
	}
	begin, ok := e.template.CallBegin(name)
	if !ok {
		return nil, fmt.Errorf("%w: ToolChoice: the chat template in %s shows no form of a call", ErrUnsupported, e.info.Dir)
	}
	if thinking {
		begin = chat.ThinkingEnd + begin
	}
	return e.tok.Encode(begin), nil
}

// budget is how many tokens the next blocks may give: up to the end, or to the
// one at which a thought, open or still possible, is to be closed.
func (g *generation) budget() int {
	left := g.plan.limit - g.stats.CompletionTokens
	if g.plan.thought > 0 && g.text.thought.MayThink() {
		left = min(left, g.plan.thought-g.stats.ReasoningTokens)
	}
	return left
}

// overdue says that the thought has used up its budget and is not closed.
func (g *generation) overdue() bool {
	return g.plan.thought > 0 && g.text.thinking() && g.stats.ReasoningTokens >= g.plan.thought
}

// force runs tokens after the newest one and returns them.
func (g *generation) force(ctx context.Context, ids []int) (cycle, error) {
	return g.round(func() (cycle, error) {
		probs, err := g.decoder.force(ctx, ids)
		return cycle{tokens: ids, probs: probs, forced: true}, err
	})
}

// begin puts the beginning of a call in the place of the token that the
// prompt's pass chose.
func (g *generation) begin(ctx context.Context) (cycle, error) {
	g.stats.begun = true
	ids := g.plan.begin[:min(len(g.plan.begin), g.plan.limit)]
	d := g.decoder
	if d.constraint != nil {
		if err := d.constraint.advance(ids[:1]); err != nil {
			return cycle{}, err
		}
	}
	c := cycle{tokens: ids, probs: d.anchorProbs, forced: true}
	if len(ids) > 1 {
		rest, err := g.force(ctx, ids[1:])
		if err != nil {
			return cycle{}, err
		}
		c.probs = slices.Concat(c.probs, rest.probs)
	}
	return c, nil
}

// close ends the thought.
func (g *generation) close(ctx context.Context) (cycle, error) {
	left := g.plan.limit - g.stats.CompletionTokens
	return g.force(ctx, g.plan.closing[:min(len(g.plan.closing), left)])
}

// force runs the anchor and all of ids but the last, which becomes the anchor.
// The result has what the target says of each, nil where nobody asked.
func (d *Decoder) force(ctx context.Context, ids []int) ([]tokenProbs, error) {
	var o outcome
	run := append([]int{d.anchor}, ids[:len(ids)-1]...)
	d.limitDraft(d.cache.Len() + len(run))
	err := d.do(ctx, func(s *mlx.Scope) error {
		if at := d.cache.Len(); len(run) > 1 {
			before := d.mark()
			defer func() { d.clearMarks(); d.setMark(before, at) }()
		}
		rows := idArray(s, run)
		hidden, taps := d.target.Forward(s, rows, d.cache, d.taps())
		if d.scorer.asked() {
			count := idArray(s, []int{len(ids) - 1})
			logits := d.target.Logits(s, hidden)
			packed, err := readIDs(d.scorer.pack(s, count, checked(s, logits, idArray(s, ids)), rows, logits))
			if err == nil {
				err = s.Err()
			}
			if err != nil {
				return err
			}
			o = d.scorer.unpack(packed, len(ids))
			if err := d.sound(s, o, d.cache.Len()+1); err != nil {
				return err
			}
		}
		if err := d.commitRows(s, taps, len(run)); err != nil {
			return err
		}
		d.past.rows = append(d.past.rows, run...)
		d.scorer.commit(s, rows, nn.Rows{N: len(run)})
		return s.Eval(d.state()...)
	})
	if err != nil {
		return nil, err
	}
	d.anchor = ids[len(ids)-1]
	return o.probs, nil
}
