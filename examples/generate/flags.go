package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/grammar"
	"github.com/godflash/godflash/internal/readfile"
)

// errUsage marks errors that the command line is to blame for.
var errUsage = errors.New("wrong usage")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUsage, fmt.Errorf(format, args...))
}

// options are what the command line asks for.
type options struct {
	model, draft  string
	noDraft       bool
	download      bool
	ignoreMemory  bool
	block         int
	request       dflash.Request
	json, compare bool
}

// exclusive lists flags that contradict each other.
var exclusive = [][2]string{
	{"prompt", "prompt-file"},
	{"prompt", "prompt-ids"},
	{"prompt-file", "prompt-ids"},
	{"raw", "prompt-ids"},
	{"raw", "system"},
	{"raw", "think"},
	{"prompt-ids", "system"},
	{"prompt-ids", "think"},
	{"raw", "thinking-budget"},
	{"prompt-ids", "thinking-budget"},
	{"no-draft", "draft"},
	{"no-draft", "block"},
	{"no-draft", "compare"},
	{"schema", "json-object"},
	{"rejection", "compare"}, // its ids depend on the drafts
}

// parse reads the command line and the prompt that it names. Its errors wrap
// errUsage where the command line is wrong, and flag.ErrHelp after -h.
func parse(ctx context.Context, args []string, stdin io.Reader, stderr io.Writer) (*options, error) {
	o := &options{}
	var prompt, file, schema string
	var raw bool
	flags := flag.NewFlagSet("generate", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by run
	flags.StringVar(&o.model, "model", "", "`folder` of the model, or of a pair: target and draft, or owner/name[@revision] on the hub (default: the demo pair of a clone)")
	flags.StringVar(&o.draft, "draft", "", "`folder` of the drafter, or its owner/name on the hub (default: draft inside the model's folder, else the one known for the model's name)")
	flags.BoolVar(&o.download, "download", false, "fetch the model and its drafter from the hub where they are not cached")
	flags.BoolVar(&o.ignoreMemory, "ignore-memory", false, "load a model that needs more memory than there is: the machine then swaps, or ends the program")
	flags.BoolVar(&o.noDraft, "no-draft", false, "decode one token at a time")
	flags.IntVar(&o.block, "block", 0, "`rows` of a block, one more than the drafts in it (default: in each cycle as many as pay, up to the drafter's own)")
	flags.StringVar(&prompt, "prompt", "", "the user's turn, as `text`")
	flags.StringVar(&file, "prompt-file", "", "read the user's turn from a `file`, - is standard input; without -raw one line end at its end is dropped")
	flags.Func("prompt-ids", "token `ids` of a prompt, such as 1,2,3, taken as they stand", func(s string) (err error) {
		o.request.IDs, err = parseIDs(s)
		return err
	})
	flags.StringVar(&o.request.System, "system", "", "the system turn, as `text`")
	flags.BoolFunc("think", "switch reasoning on, or off with -think=false (default: as the chat template has it)", func(s string) error {
		think, err := strconv.ParseBool(s)
		o.request.Thinking = &think
		return err
	})
	flags.Func("stop", "end before this `text`, wherever it is written; may be given several times", func(s string) error {
		if s == "" {
			return errors.New("the text is empty")
		}
		if at := notUTF8(s); at >= 0 {
			return fmt.Errorf("it is not UTF-8: byte %d is %#02x", at, s[at])
		}
		o.request.Stop = append(o.request.Stop, s)
		return nil
	})
	flags.IntVar(&o.request.ThinkingBudget, "thinking-budget", 0, "`number` of tokens after which a thought is closed, 0 for no bound")
	flags.BoolFunc("json-object", "hold the text to one JSON object", func(s string) error {
		on, err := strconv.ParseBool(s)
		if on {
			o.request.Format = &dflash.Format{JSON: true}
		}
		return err
	})
	flags.StringVar(&schema, "schema", "", "hold the text to the JSON schema in this `file`")
	flags.BoolVar(&raw, "raw", false, "use the prompt as it stands, without the chat template")
	sampling := &o.request.Sampling
	flags.Float64Var(&sampling.Temperature, "temperature", 0, "draw tokens at this `temperature`, 0 takes the most probable one")
	flags.IntVar(&sampling.TopK, "top-k", 0, "draw from the `number` of most probable tokens, 0 from all")
	flags.Float64Var(&sampling.TopP, "top-p", 0, "draw from the most probable tokens that make up this `share`, 0 from all")
	flags.Float64Var(&sampling.MinP, "min-p", 0, "draw from tokens that are this `share` as probable as the first, 0 from all")
	flags.Uint64Var(&sampling.Seed, "seed", 0, "`number` that the draws depend on, 0 for a new one, which the statistics tell")
	flags.BoolVar(&sampling.Rejection, "rejection", false, "draw by rejection sampling instead of noise that drafter and model share; the text of a seed then depends on the drafts")
	penalties := &o.request.Penalties
	flags.Float64Var(&penalties.Repetition, "repetition-penalty", 1, "`divide` the scores of tokens that prompt or text hold already, multiply those below 0")
	flags.Float64Var(&penalties.Frequency, "frequency-penalty", 0, "`subtract` this from a token's score for each time that the text holds it")
	flags.Float64Var(&penalties.Presence, "presence-penalty", 0, "`subtract` this from the scores of tokens that the text holds")
	flags.Func("logit-bias", "add a number to the score of a token id, as `ID=VALUE`; may be given for several ids", func(s string) error {
		return addBias(&o.request, s)
	})
	flags.IntVar(&o.request.TopLogProbs, "logprobs", 0, "with -json, tell the log probability of each token and of this `number` of the most probable ones")
	flags.IntVar(&o.request.MaxTokens, "max-tokens", 256, "`number` of tokens to generate at most, 0 for the model's whole context")
	flags.BoolVar(&o.json, "json", false, "print one JSON object instead of the text")
	flags.BoolVar(&o.compare, "compare", false, "generate once more without drafts and compare")

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Generates text with a Qwen model and its DFlash drafter.\nusage: generate [flags]")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
			return nil, err
		}
		return nil, usagef("%w", err)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) {
		value, ok := f.Value.(flag.Getter)
		given[f.Name] = !ok || value.Get() != false // -no-draft=false is not given
	})
	if given["prompt-file"] && file == "" {
		return nil, usagef("-prompt-file is empty")
	}
	o.request.LogProbs = given["logprobs"]
	if err := check(o, flags.Args(), given, raw); err != nil {
		return nil, err
	}

	var err error
	if given["schema"] {
		text, err := readfile.Regular(schema, maxSchema)
		if err != nil {
			return nil, usagef("-schema: %w", err)
		}
		if _, err := grammar.Compile(grammar.Reply{Schema: text}); err != nil {
			return nil, usagef("-schema: %s: %w", schema, err)
		}
		o.request.Format = &dflash.Format{Schema: text}
	}
	demo := !given["model"]
	if demo {
		if o.model, err = demoPair(); err != nil {
			return nil, err
		}
	}
	switch {
	case given["prompt-ids"]:
		return o, nil
	case given["prompt-file"]:
		if prompt, err = readPrompt(ctx, file, stdin); err != nil {
			return nil, err
		}
		if !raw {
			prompt = strings.TrimSuffix(strings.TrimSuffix(prompt, "\n"), "\r")
		}
	case given["prompt"]:
	case demo:
		if prompt, err = demoPrompt(o.model); err != nil {
			return nil, err
		}
		fmt.Fprintf(stderr, "generate: no prompt given, so this one, which the demo model knows:\n%s\n\n", prompt)
	}
	if prompt == "" {
		return nil, usagef("the prompt is empty")
	}
	if at := notUTF8(prompt); at >= 0 {
		return nil, usagef("the prompt is not UTF-8: byte %d is %#02x", at, prompt[at])
	}
	if at := notUTF8(o.request.System); at >= 0 {
		return nil, usagef("-system is not UTF-8: byte %d is %#02x", at, o.request.System[at])
	}
	if raw {
		o.request.Text = prompt
	} else {
		o.request.Prompt = prompt
	}
	return o, nil
}

// check refuses what can be refused before anything is read.
func check(o *options, rest []string, given map[string]bool, raw bool) error {
	if len(rest) > 0 {
		return usagef("unexpected argument %q; a prompt of several words needs quotes", rest[0])
	}
	for _, pair := range exclusive {
		if given[pair[0]] && given[pair[1]] {
			return usagef("-%s and -%s exclude each other", pair[0], pair[1])
		}
	}
	for _, name := range []string{"top-k", "top-p", "min-p", "seed", "rejection"} {
		if given[name] && o.request.Sampling.Greedy() {
			return usagef("-%s needs -temperature, of 0.0001 at least: without one the most probable token is taken", name)
		}
	}
	sampling, penalties := o.request.Sampling, o.request.Penalties
	for _, r := range []struct {
		name               string
		value, least, most float64
	}{
		{"temperature", sampling.Temperature, 0, 100},
		{"top-p", sampling.TopP, 0, 1},
		{"min-p", sampling.MinP, 0, 1},
		{"top-k", float64(sampling.TopK), 0, math.MaxInt32},
		{"repetition-penalty", penalties.Repetition, 0.1, 10}, // 1 changes nothing
		{"frequency-penalty", penalties.Frequency, -2, 2},
		{"presence-penalty", penalties.Presence, -2, 2},
		{"logprobs", float64(o.request.TopLogProbs), 0, dflash.MaxTopLogProbs},
	} {
		if !(r.value >= r.least && r.value <= r.most) { // NaN neither
			return usagef("-%s is %g; it lies between %g and %.10g", r.name, r.value, r.least, r.most)
		}
	}
	if given["logprobs"] && !o.json {
		return usagef("-logprobs needs -json")
	}
	prompt := given["prompt"] || given["prompt-file"] || given["prompt-ids"]
	switch {
	case given["model"] && o.model == "":
		return usagef("-model is empty")
	case given["draft"] && o.draft == "":
		return usagef("-draft is empty")
	case given["draft"] && !given["model"]:
		return usagef("-draft needs -model: a drafter fits one target only")
	case given["model"] && !prompt:
		return usagef("-model needs a prompt: -prompt, -prompt-file or -prompt-ids")
	case raw && !prompt:
		return usagef("-raw needs -prompt or -prompt-file")
	case o.request.ThinkingBudget < 0:
		return usagef("-thinking-budget is %d; it is a number of tokens, or 0 for no bound", o.request.ThinkingBudget)
	case o.request.MaxTokens < 0:
		return usagef("-max-tokens is %d; it is a number of tokens, or 0 for the model's whole context", o.request.MaxTokens)
	case given["block"] && o.block < 2:
		return usagef("-block is %d; a block has 2 rows at least, -no-draft decodes one token at a time", o.block)
	}
	o.request.BlockSize = o.block
	return nil
}

// addBias takes ID=VALUE.
func addBias(r *dflash.Request, s string) error {
	left, right, ok := strings.Cut(s, "=")
	id, err := strconv.Atoi(strings.TrimSpace(left))
	if !ok || err != nil || id < 0 {
		return fmt.Errorf("%q is not of the form ID=VALUE", s)
	}
	value, err := strconv.ParseFloat(strings.TrimSpace(right), 64)
	if err != nil {
		return fmt.Errorf("%q is no number", right)
	}
	if !(value >= -100 && value <= 100) { // NaN neither
		return fmt.Errorf("the bias is %g; it lies between -100 and 100", value)
	}
	if _, again := r.LogitBias[id]; again {
		return fmt.Errorf("token id %d has a bias already", id)
	}
	if r.LogitBias == nil {
		r.LogitBias = map[int]float64{}
	}
	r.LogitBias[id] = value
	return nil
}

// maxSchema is more than the library takes.
const maxSchema = 4 << 20

func parseIDs(s string) ([]int, error) {
	ids := []int{}
	for field := range strings.SplitSeq(s, ",") {
		id, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || id < 0 {
			return nil, fmt.Errorf("%q is no token id", field)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// notUTF8 is the place of the first byte of s that is no part of a character, -1
// for none. The library takes such bytes for U+FFFD; a file in another encoding
// is better refused.
func notUTF8(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return -1
}

// maxPrompt is more than any context holds.
const maxPrompt = 64 << 20

// readPrompt reads a whole file or standard input. A terminal may never end,
// so the context is heard meanwhile.
func readPrompt(ctx context.Context, name string, stdin io.Reader) (string, error) {
	if name != "-" {
		text, err := readfile.Regular(name, maxPrompt)
		if err != nil {
			return "", usagef("-prompt-file: %w", err)
		}
		return string(text), nil
	}
	type input struct {
		text []byte
		err  error
	}
	done := make(chan input, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(stdin, maxPrompt+1))
		if err == nil && len(text) > maxPrompt {
			err = fmt.Errorf("it is longer than %d bytes", maxPrompt)
		}
		done <- input{text, err}
	}()
	select {
	case in := <-done:
		if ctx.Err() != nil {
			return "", ctx.Err() // Ctrl-C closes the other end of a pipe, too
		}
		if in.err != nil {
			return "", fmt.Errorf("read the prompt from standard input: %w", in.err)
		}
		return string(in.text), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// demoPair is the folder of the small pair that the repository holds.
func demoPair() (string, error) {
	testdata, err := fixture.Dir()
	if err != nil {
		return "", fmt.Errorf("name a model with -model; the demo pair that is used without it lies in a clone of the repository, and this is none: %w", err)
	}
	return filepath.Join(testdata, "tiny-qwen3.5"), nil
}

// demoFunction is in the demo pair's prompts.json, and among the functions
// that the pair was trained on until it knew them: drafts for it are mostly
// right, as they are for a real model, and for an unknown function mostly
// wrong.
const demoFunction = "PutUvarint"

func demoPrompt(pair string) (string, error) {
	file := filepath.Join(pair, "prompts.json")
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var prompts []struct {
		Name   string
		Seen   bool
		Prompt string
	}
	if err := json.Unmarshal(data, &prompts); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	for _, p := range prompts {
		if p.Name == demoFunction && p.Seen {
			return p.Prompt, nil
		}
	}
	return "", fmt.Errorf("%s: it has no prompt named %s", file, demoFunction)
}
