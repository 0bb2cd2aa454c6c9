package dflash

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/godflash/godflash/internal/stoptext"
	"github.com/godflash/godflash/qwen/chat"
	"github.com/godflash/godflash/qwen/tokenizer"
)

// text is what a generation makes of its tokens. It passes three stages: whole
// characters, stop texts, and the parts of a reply.
type text struct {
	stream *tokenizer.Stream
	stops  stoptext.Matcher
	// splitter and thought are nil for requests without a chat template. What
	// stops hold back reaches the splitter later, so thought, which counts the
	// thought's tokens, reads before them.
	splitter *chat.Splitter
	thought  *chat.Splitter
}

// checkStops refuses stop texts that no output can hold.
func checkStops(stops []string) error {
	for i, stop := range stops {
		switch {
		case stop == "":
			return fmt.Errorf("%w: stop text %d is empty", ErrRequest, i)
		case !utf8.ValidString(stop):
			return fmt.Errorf("%w: stop text %d, %q, is not UTF-8", ErrRequest, i, stop)
		}
	}
	return nil
}

// planText checks what a request asks of the text, and plans the forced tokens.
func (e *Engine) planText(p *plan, r *Request) error {
	p.chat = r.chatForm()
	p.stopTexts = r.Stop
	if err := checkStops(r.Stop); err != nil {
		return err
	}
	switch {
	case r.ThinkingBudget < 0:
		return fmt.Errorf("%w: ThinkingBudget is %d", ErrRequest, r.ThinkingBudget)
	case r.ThinkingBudget > 0 && !p.chat:
		return fmt.Errorf("%w: ThinkingBudget needs Prompt or Messages: without a chat template there is no thought to close", ErrRequest)
	case !p.chat:
		return nil
	}
	p.thinking = chat.OpensThinking(e.lastTurn(p.ids))
	if p.thought = r.ThinkingBudget; p.thought > 0 {
		p.closing = e.tok.Encode(chat.ThinkingEnd)
	}
	if r.ToolChoice.calls() {
		var err error
		p.begin, err = e.callIDs(r, p.thinking)
		return err
	}
	return nil
}

// lastTurn is the text of the turn that ids end in. Ids without a token are no
// text.
func (e *Engine) lastTurn(ids []int) string {
	if id, ok := e.tok.TokenID("<|im_start|>"); ok {
		for i, held := range slices.Backward(ids) {
			if held == id {
				ids = ids[i:]
				break
			}
		}
	}
	var turn strings.Builder
	for _, id := range ids {
		turn.Write(e.tok.Bytes(id))
	}
	return turn.String()
}

// newText begins the text of a checked request.
func (e *Engine) newText(p *plan, r *Request) (text, error) {
	t := text{stream: e.tok.Stream(tokenizer.StreamOptions{SkipSpecial: true})}
	if len(r.Stop) > 0 {
		t.stops = stoptext.New(r.Stop).Matcher()
	}
	if !p.chat {
		return t, nil
	}
	var err error
	if t.thought, err = chat.NewSplitter(&chat.SplitterOptions{Thinking: p.thinking}); err != nil {
		return text{}, err
	}
	t.splitter, err = chat.NewSplitter(&chat.SplitterOptions{Thinking: p.thinking, Tools: r.offered()})
	return t, err
}

// push takes a token and gives the text that is certain now, and the index of
// the stop text that it completes or -1. A forced token completes none: what
// stop texts held back before it is given.
func (t *text) push(id int, forced bool) (out string, stop int, err error) {
	piece, err := t.stream.Push(id)
	// Rows of a padded vocabulary stand for no text.
	if err != nil && !errors.Is(err, tokenizer.ErrUnknownID) {
		return "", -1, err
	}
	if t.thought != nil {
		t.thought.Push(piece)
	}
	if forced {
		return t.stops.Flush() + piece, -1, nil
	}
	out, stop = t.stops.Push(piece)
	return out, stop, nil
}

// flush ends the text and gives what was held back.
func (t *text) flush() string { return t.stops.Flush() + t.stream.Flush() }

// ends says after how many of the tokens a stop text is complete, without
// taking them: 0 for none.
func (t *text) ends(ids []int) int {
	tried := text{stream: t.stream.Clone(), stops: t.stops}
	for i, id := range ids {
		// What cannot be decoded is an error when it is handed out.
		if _, stop, err := tried.push(id, false); err == nil && stop >= 0 {
			return i + 1
		}
	}
	return 0
}

// split gives the parts of what was handed out.
func (t *text) split(piece string, last bool) []chat.Delta {
	if t.splitter == nil {
		return nil
	}
	deltas := t.splitter.Push(piece)
	if last {
		deltas = append(deltas, t.splitter.Flush()...)
	}
	return deltas
}

// thinking says whether the reply is inside a thought.
func (t *text) thinking() bool { return t.thought != nil && t.thought.Thinking() }
