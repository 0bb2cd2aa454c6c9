package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/readfile"
	"github.com/godflash/godflash/qwen/chat"
)

// prompt is what both ways of decoding begin with.
type prompt struct {
	name, kind string
	ids        []int
}

// long is the kind of prompts that -context gives the length of.
const long = "long"

// builtIn are user turns by kind, written for this program.
var builtIn = []struct {
	kind  string
	turns []string
}{
	{"code", []string{
		"Write a Go function that merges two sorted slices of integers into one sorted slice, without sorting again. Then write a table-driven test for it.",
		"Here is a Python function:\n\ndef f(xs):\n    out = []\n    for i in range(len(xs)):\n        if xs[i] not in xs[:i]:\n            out.append(xs[i])\n    return out\n\nSay what it does and how its time grows, and write one that takes linear time and gives the same result.",
		"Write a SQL schema for a library that lends books: members, books, copies, loans. Then write the query that lists every member with a loan more than 30 days old.",
	}},
	{"chat", []string{
		"I have two days in a harbour town in the north and it is going to rain. What should I do there? Give me a plan by the hour for the first day.",
		"Explain to a twelve-year-old why the sky is blue at noon and red in the evening, without formulas.",
		"Write a polite letter to my landlord: the heating has failed three times this month, and I want to know when it will be repaired for good.",
	}},
	{"maths", []string{
		"A tank is filled by one pipe in 6 hours and by another in 4 hours, and a leak empties it in 12 hours. Both pipes are opened and nobody mends the leak. When is the tank full? Reason step by step.",
		"Find all pairs of positive whole numbers x and y with x·y = 3x + 5y. Show every step.",
		"A bag holds 5 red, 4 blue and 3 green balls. Three are drawn without putting any back. What is the probability that all three have different colours? Reason step by step.",
	}},
	{long, nil},
}

func kindNames() (names []string) {
	for _, k := range builtIn {
		names = append(names, k.kind)
	}
	return names
}

// defaultContext is the length of a long prompt, in tokens, where the model has
// room for it.
const defaultContext = 4096

// collect gives the prompts that the command line asks for.
func collect(e *dflash.Engine, o *options, pair string) ([]prompt, error) {
	if pair != "" && o.kinds == nil && o.promptFiles == nil && o.context == nil {
		if list, err := reference(pair); err != nil || list != nil {
			return list, err
		}
	}
	kinds := o.kinds
	if kinds == nil && o.promptFiles == nil {
		kinds = kindNames()
	} else if kinds == nil && o.context != nil {
		kinds = []string{long}
	}
	var out []prompt
	for _, k := range builtIn {
		for _, name := range kinds {
			if name != k.kind {
				continue
			}
			for i, turn := range k.turns {
				ids, err := encode(e, turn)
				if err != nil {
					return nil, err
				}
				out = append(out, prompt{fmt.Sprintf("%s-%d", k.kind, i+1), k.kind, ids})
			}
			if k.kind == long {
				list, err := longPrompts(e, o)
				if err != nil {
					return nil, err
				}
				out = append(out, list...)
			}
		}
	}
	for _, name := range o.promptFiles {
		text, err := readfile.Regular(name, 64<<20)
		if err != nil {
			return nil, usagef("-prompt-file: %w", err)
		}
		if len(text) == 0 {
			return nil, usagef("-prompt-file: %s is empty", name)
		}
		ids, err := encode(e, strings.TrimSuffix(string(text), "\n"))
		if err != nil {
			return nil, err
		}
		out = append(out, prompt{filepath.Base(name), "file", ids})
	}
	return out, nil
}

// encode renders a user's turn by the chat template, or takes it as it stands
// for a model without one.
func encode(e *dflash.Engine, turn string) ([]int, error) {
	if e.Template() == nil {
		return e.Tokenizer().Encode(turn), nil
	}
	text, err := e.Template().Render([]chat.Message{{Role: "user", Content: turn}}, &chat.Options{AddGenerationPrompt: true})
	if err != nil {
		return nil, err
	}
	return e.Tokenizer().Encode(text), nil
}

// longPrompts are made-up records and a question about them.
func longPrompts(e *dflash.Engine, o *options) ([]prompt, error) {
	room := e.Info().ContextLength - o.maxTokens
	sizes := o.context
	if sizes == nil {
		sizes = []int{min(defaultContext, room)}
	}
	var out []prompt
	for _, size := range sizes {
		if size > room {
			return nil, usagef("-context: %d tokens and %d to generate are more than the model's %d positions", size, o.maxTokens, e.Info().ContextLength)
		}
		ids, err := records(e, size)
		if err != nil {
			return nil, err
		}
		out = append(out, prompt{fmt.Sprintf("long-%d", size), long, ids})
	}
	return out, nil
}

// records is the longest of such prompts that has at most size tokens.
func records(e *dflash.Engine, size int) ([]int, error) {
	low, high := 0, 1
	fits := func(n int) ([]int, bool, error) {
		ids, err := encode(e, recordsText(n))
		return ids, len(ids) <= size, err
	}
	var best []int
	for {
		ids, ok, err := fits(high)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		best, low, high = ids, high, 2*high
	}
	for high-low > 1 {
		mid := (low + high) / 2
		ids, ok, err := fits(mid)
		if err != nil {
			return nil, err
		}
		if ok {
			best, low = ids, mid
		} else {
			high = mid
		}
	}
	if best == nil {
		return nil, usagef("-context: %d tokens are too few for a prompt with a question", size)
	}
	return best, nil
}

func recordsText(n int) string {
	goods := []string{"apples", "lamps", "ropes", "bricks", "kettles", "maps", "saddles"}
	ports := []string{"Aberdeen", "Bergen", "Cork", "Danzig", "Esbjerg"}
	var b strings.Builder
	b.WriteString("These are the entries of a harbour's book:\n")
	for i := range n {
		fmt.Fprintf(&b, "%d. A ship from %s landed %d crates of %s on day %d.\n", i+1, ports[i*3%len(ports)], 7+i*13%90, goods[i*5%len(goods)], 1+i/4)
	}
	b.WriteString("\nWhich port sent the most crates on the last day? List the entries that you counted, then answer.")
	return b.String()
}

// demoPair is the folder of the pair that is measured without -model.
func demoPair() (string, error) {
	testdata, err := fixture.Dir()
	if err != nil {
		return "", fmt.Errorf("name a model with -model; the demo pair that is used without it lies in a clone of the repository, and this is none: %w", err)
	}
	return filepath.Join(testdata, "tiny-qwen3.5"), nil
}

// reference gives the prompts for which a pair of the repository has reference
// texts: known ones, which it has learned by heart and drafts well, and unknown
// ones. Other folders have none.
func reference(pair string) ([]prompt, error) {
	name := filepath.Join(pair, "reference.json")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []struct {
		Prompt []int
		Seen   bool
	}
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var out []prompt
	numbers := map[string]int{}
	for _, p := range list {
		kind := "unknown"
		if p.Seen {
			kind = "known"
		}
		numbers[kind]++
		out = append(out, prompt{fmt.Sprintf("%s-%d", kind, numbers[kind]), kind, p.Prompt})
	}
	return out, nil
}
