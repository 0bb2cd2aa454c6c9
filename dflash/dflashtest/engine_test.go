package dflashtest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/qwen/chat"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// generator is what a program needs of an engine.
type generator interface {
	Generate(ctx context.Context, r dflash.Request, stats *dflash.Stats) iter.Seq2[dflash.Token, error]
}

var _ generator = (*dflash.Engine)(nil)

// shout is a program that uses an engine.
func shout(ctx context.Context, g generator, prompt string) error {
	for token, err := range g.Generate(ctx, dflash.Request{Prompt: prompt}, nil) {
		if err != nil {
			return err
		}
		fmt.Print(token.Text)
	}
	fmt.Println("!")
	return nil
}

func Example() {
	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Content("Hello", ", ", "world")...)}
	if err := shout(context.Background(), engine, "Greet me."); err != nil {
		fmt.Println(err)
	}
	fmt.Println(engine.Requests()[0].Prompt)
	// Output:
	// Hello, world!
	// Greet me.
}

func collect(t *testing.T, e *dflashtest.Engine, r dflash.Request) (tokens []dflash.Token, st dflash.Stats, err error) {
	t.Helper()
	for token, failure := range e.Generate(t.Context(), r, &st) {
		if failure != nil {
			return tokens, st, failure
		}
		tokens = append(tokens, token)
	}
	return tokens, st, nil
}

func TestScript(t *testing.T) {
	steps := append(dflashtest.Reasoning("hm"), dflashtest.Content("a", "b")...)
	steps[2].Drafted = true
	e := &dflashtest.Engine{Script: dflashtest.Always(steps...)}
	tokens, st, err := collect(t, e, dflash.Request{Prompt: "two words"})
	require.NoError(t, err)
	require.Len(t, tokens, 4)
	require.Equal(t, []chat.Delta{{Kind: chat.DeltaReasoning, Text: "hm"}}, tokens[0].Deltas)
	require.Equal(t, []int{2, 3, 4, 5}, []int{tokens[0].Position, tokens[1].Position, tokens[2].Position, tokens[3].Position})
	require.Equal(t, dflash.FinishStop, tokens[3].Finish)
	require.Empty(t, tokens[3].Text)
	require.Equal(t, []byte("b"), e.TokenBytes(tokens[2].ID))
	require.Nil(t, e.TokenBytes(99))
	require.Equal(t, 1, st.ReasoningTokens)
	require.Equal(t, []int{0, 1}, st.AcceptedPerCycle)
	require.Equal(t, 1, st.Accepted)
	require.Equal(t, 3, st.Drafted)

	tokens, st, err = collect(t, e, dflash.Request{Text: "x", MaxTokens: 2})
	require.NoError(t, err)
	require.Equal(t, dflash.FinishLength, tokens[1].Finish)
	require.Equal(t, dflash.FinishLength, st.Finish)
	require.Nil(t, tokens[0].Deltas, "without a template there are none")
}

func TestFailures(t *testing.T) {
	broken := errors.New("broken")
	e := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Step{Text: "a"}, dflashtest.Step{Err: broken})}
	tokens, st, err := collect(t, e, dflash.Request{Prompt: "x"})
	require.ErrorIs(t, err, broken)
	require.Len(t, tokens, 1)
	require.Empty(t, st.Finish)
	for want, r := range map[error]dflash.Request{
		dflash.ErrEmptyPrompt:   {},
		dflash.ErrRequest:       {Prompt: "x", Text: "y"},
		dflash.ErrContextLength: {IDs: make([]int, 4096)},
	} {
		_, err := e.PromptTokens(r)
		require.ErrorIs(t, err, want)
		_, _, err = collect(t, e, r)
		require.ErrorIs(t, err, want)
	}
	require.NoError(t, e.Close())
	_, _, err = collect(t, e, dflash.Request{Prompt: "x"})
	require.ErrorIs(t, err, dflash.ErrClosed)
}

func TestWaiting(t *testing.T) {
	gate := make(chan struct{})
	e := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Step{Text: "a", Gate: gate}, dflashtest.Step{Text: "b", Delay: time.Hour})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { gate <- struct{}{} }()
	var last error
	n := 0
	for token, err := range e.Generate(ctx, dflash.Request{Prompt: "x"}, nil) {
		if last = err; err == nil {
			require.Equal(t, "a", token.Text)
			require.Equal(t, 1, e.Running())
			n++
			cancel()
		}
	}
	require.ErrorIs(t, last, context.Canceled)
	require.Equal(t, 1, n)
	require.Equal(t, 1, e.Steps())
	require.Zero(t, e.Running())
}
