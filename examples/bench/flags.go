package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/synthetic"
)

// errUsage marks errors that the command line is to blame for.
var errUsage = errors.New("wrong usage")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUsage, fmt.Errorf(format, args...))
}

// options are what the command line asks for.
type options struct {
	model, draft string
	draftBits    int
	block        int
	kinds        []string
	promptFiles  []string
	context      []int // tokens of a long prompt
	maxTokens    int
	repeats      int
	warmUp       int
	temperature  float64
	seed         uint64
	hash         bool
	peer         string
	plot         string
	form         string
	read         string // a report to write again

	// With -synthetic:
	shape       string
	bits        int
	layers      int
	accept      float64 // tokens per cycle
	cycles      int
	trace       string
	peerContext []int // nil: all
}

// exclusive lists flags that contradict each other.
var exclusive = [][2]string{
	{"json", "markdown"},
	{"json", "benchstat"},
	{"markdown", "benchstat"},
	{"synthetic", "model"},
	{"synthetic", "draft"},
	{"synthetic", "kinds"},
	{"synthetic", "prompt-file"},
	{"synthetic", "max-tokens"},
	{"synthetic", "warm-up"},
	{"synthetic", "temperature"},
	{"synthetic", "hash"},
}

// synthetic lists flags that mean something with -synthetic only.
var syntheticOnly = []string{"bits", "layers", "accept", "cycles", "trace", "peer-context"}

// parse reads the command line. Its errors wrap errUsage, or are flag.ErrHelp
// after -h.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{form: asTable}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by run
	flags.StringVar(&o.model, "model", "", "`folder` of the model, or of a pair: target and draft, or owner/name[@revision] in the hub's cache (default: the demo pair of a clone)")
	flags.StringVar(&o.draft, "draft", "", "`folder` of the drafter, or its owner/name (default: draft inside the model's folder, else the one known for the model's name)")
	flags.IntVar(&o.draftBits, "draft-bits", 0, "store the drafter in 4 or 8 `bits`, -1 for the file's precision (default: as the library chooses)")
	flags.IntVar(&o.block, "block", 0, "`rows` of a block, one more than the drafts in it (default: the drafter's own, and the library may draft fewer)")
	kinds := flags.String("kinds", "", "`kinds` of built-in prompts: code, chat, maths, long (default: all of them, without -prompt-file)")
	flags.Func("prompt-file", "a user's turn in a `file`; may be given several times", func(s string) error {
		o.promptFiles = append(o.promptFiles, s)
		return nil
	})
	context := flags.String("context", "", "tokens of the long prompts, as a `list` such as 1024,16384 (default 4096, or what fits; with -synthetic 700,1024,4096,16384,32768)")
	flags.IntVar(&o.maxTokens, "max-tokens", 128, "`number` of tokens to generate at most for a prompt")
	flags.IntVar(&o.repeats, "repeats", 5, "`number` of rounds (with -synthetic 1, of many cycles)")
	flags.IntVar(&o.warmUp, "warm-up", 1, "`number` of rounds before them that do not count")
	flags.Float64Var(&o.temperature, "temperature", 0, "draw tokens at this `temperature`, 0 takes the most probable one")
	flags.Uint64Var(&o.seed, "seed", 1, "`number` that draws depend on, with -synthetic weights and pattern")
	flags.BoolVar(&o.hash, "hash", true, "tell the SHA-256 of configurations and weights; files of the hub's cache have it in their name, others are read")
	flags.StringVar(&o.peer, "peer", "", "measure mlx-lm too, run by this Python `interpreter`")
	flags.StringVar(&o.plot, "plot", "", "draw the rates into this `file`, .png or .svg")
	flags.StringVar(&o.read, "read", "", "measure nothing, write the report in this `file`, which -json made, in another form")
	flags.StringVar(&o.shape, "synthetic", "", "measure random weights of this `shape`: "+strings.Join(synthetic.Names(), ", "))
	flags.IntVar(&o.bits, "bits", 0, "make the target's weights in 4 `bits` (default: bfloat16)")
	flags.IntVar(&o.layers, "layers", 0, "make so many of the target's `layers` only")
	flags.Float64Var(&o.accept, "accept", 6.5, "mean `number` of tokens per cycle that is replayed")
	flags.IntVar(&o.cycles, "cycles", 24, "`number` of steps and cycles that are timed at a context length")
	flags.StringVar(&o.trace, "trace", "", "write what the host did in the cycles at the last context length to this `file`, in Chrome's trace format")
	peerContext := flags.String("peer-context", "", "`list` of context lengths at which -peer is measured too (default: all)")
	forms := map[string]*bool{
		asJSON:      flags.Bool(asJSON, false, "print one JSON object instead of the table"),
		asMarkdown:  flags.Bool(asMarkdown, false, "print Markdown instead of the table"),
		asBenchstat: flags.Bool(asBenchstat, false, "print lines for benchstat instead of the table, one a round"),
	}

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Measures a model with its DFlash drafter against plain decoding.\nusage: bench [flags]")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
			return nil, err
		}
		return nil, usagef("%w", err)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) {
		value, ok := f.Value.(flag.Getter)
		given[f.Name] = !ok || value.Get() != false // -json=false is not given
	})
	for form, asked := range forms {
		if *asked {
			o.form = form
		}
	}
	if given["synthetic"] && !given["repeats"] {
		o.repeats = 1
	}
	var err error
	if o.peerContext, err = parseSizes("peer-context", *peerContext); err != nil {
		return nil, err
	}
	if o.context, err = parseSizes("context", *context); err != nil {
		return nil, err
	}
	if given["kinds"] {
		for name := range strings.SplitSeq(*kinds, ",") {
			o.kinds = append(o.kinds, strings.TrimSpace(name))
		}
	}
	return o, check(o, flags.Args(), given)
}

// parseSizes reads a list of positive numbers; an empty text is no list.
func parseSizes(name, list string) ([]int, error) {
	if list == "" {
		return nil, nil
	}
	var out []int
	for field := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 1 {
			return nil, usagef("-%s: %q is no number of tokens", name, field)
		}
		out = append(out, n)
	}
	return out, nil
}

// check refuses what can be refused before anything is read.
func check(o *options, rest []string, given map[string]bool) error {
	if len(rest) > 0 {
		return usagef("unexpected argument %q", rest[0])
	}
	for _, pair := range exclusive {
		if given[pair[0]] && given[pair[1]] {
			return usagef("-%s and -%s exclude each other", pair[0], pair[1])
		}
	}
	if given["read"] {
		for name := range given {
			if !slices.Contains([]string{"read", "plot", asJSON, asMarkdown, asBenchstat}, name) {
				return usagef("-read measures nothing, so -%s means nothing with it", name)
			}
		}
	}
	for _, name := range syntheticOnly {
		if given[name] && !given["synthetic"] {
			return usagef("-%s needs -synthetic", name)
		}
	}
	for _, name := range o.kinds {
		if !slices.Contains(kindNames(), name) {
			return usagef("-kinds: %q is none of %s", name, strings.Join(kindNames(), ", "))
		}
	}
	if given["context"] && given["kinds"] && !slices.Contains(o.kinds, long) {
		return usagef("-context is the length of the long prompts, which -kinds leaves out")
	}
	if extension := filepath.Ext(o.plot); given["plot"] && extension != ".png" && extension != ".svg" {
		return usagef("-plot: %q ends neither in .png nor in .svg", o.plot)
	}
	switch {
	case given["model"] && o.model == "":
		return usagef("-model is empty")
	case given["draft"] && o.draft == "":
		return usagef("-draft is empty")
	case given["trace"] && o.trace == "":
		return usagef("-trace is empty")
	case given["peer"] && o.peer == "":
		return usagef("-peer is empty; it is a Python interpreter that has mlx-lm")
	case given["draft"] && !given["model"]:
		return usagef("-draft needs -model: a drafter fits one target only")
	case o.repeats < 1:
		return usagef("-repeats is %d; at least one round is needed", o.repeats)
	case o.warmUp < 0:
		return usagef("-warm-up is %d", o.warmUp)
	case o.maxTokens < 2:
		return usagef("-max-tokens is %d; a rate needs 2 at least", o.maxTokens)
	case given["block"] && o.block < 2:
		return usagef("-block is %d; a block has 2 rows at least", o.block)
	case !(o.temperature >= 0 && o.temperature <= 100):
		return usagef("-temperature is %g; it lies between 0 and 100", o.temperature)
	case given["synthetic"] && o.shape == "":
		return usagef("-synthetic is empty; it is one of %s", strings.Join(synthetic.Names(), ", "))
	case !(o.accept >= 1): // NaN neither
		return usagef("-accept is %g; a cycle gives one token at least", o.accept)
	case o.cycles < 1:
		return usagef("-cycles is %d; at least one is needed", o.cycles)
	case given["peer-context"] && o.peer == "":
		return usagef("-peer-context needs -peer")
	case given["temperature"] && o.temperature != 0 && dflash.Sampling{Temperature: o.temperature}.Greedy():
		return usagef("-temperature is %g; below 0.0001 the most probable token is taken, which 0 says", o.temperature)
	case given["seed"] && o.temperature == 0 && o.shape == "":
		return usagef("-seed needs -temperature: without one the most probable token is taken")
	case o.temperature > 0 && o.seed == 0:
		return usagef("-seed is 0, which would be another seed every time")
	case o.temperature > 0 && o.peer != "":
		return usagef("-peer and -temperature exclude each other: another program's draws are others")
	}
	return nil
}
