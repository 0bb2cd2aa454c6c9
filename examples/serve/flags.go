package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/openai"
	"github.com/godflash/godflash/internal/fixture"
)

// errUsage marks errors that the command line is to blame for.
var errUsage = errors.New("wrong usage")

func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: %w", errUsage, fmt.Errorf(format, args...))
}

// options are what the command line asks for.
type options struct {
	model  string
	engine dflash.Options
	addr   string
	api    openai.Options
	idle   time.Duration
	drain  time.Duration
	pprof  bool
	level  slog.Level
}

// maxBody is the largest -max-body, in MiB: a request lies in memory whole.
const maxBody = 1 << 20

// parse reads the command line. Its errors wrap errUsage, or are flag.ErrHelp
// after -h.
func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{}
	var aliases, cors string
	var body int64
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed by run
	flags.StringVar(&o.model, "model", "", "`folder` of the model, or of a pair: target and draft, or owner/name[@revision] on the hub (default: the demo pair of a clone)")
	flags.StringVar(&o.engine.Draft, "draft", "", "`folder` of the drafter, or its owner/name on the hub (default: draft inside the model's folder, else the one known for the model's name)")
	flags.BoolVar(&o.engine.Download, "download", false, "fetch the model and its drafter from the hub where they are not cached")
	flags.BoolVar(&o.engine.NoDraft, "no-draft", false, "decode one token at a time")
	flags.IntVar(&o.engine.BlockSize, "block", 0, "most `rows` of a block, one more than the drafts in it (default: the drafter's own)")
	flags.BoolVar(&o.engine.IgnoreMemory, "ignore-memory", false, "load weights that need more memory than there is")
	flags.StringVar(&o.addr, "addr", "127.0.0.1:8080", "`host:port` to listen at; port 0 takes a free one")
	flags.StringVar(&o.api.Model, "name", "", "`name` of the model for clients (default: owner/name on the hub, else the folder's)")
	flags.StringVar(&aliases, "alias", "", "further `names`, separated by commas; * is every name")
	flags.StringVar(&o.api.APIKey, "api-key", "", "`key` that clients must send (default: none)")
	flags.StringVar(&cors, "cors", "", "`origins` of pages that may use the server, separated by commas, such as https://chat.example; * is all (default: the server's own and this machine's)")
	flags.IntVar(&o.api.Parallel, "parallel", 4, "`number` of requests that generate at the same time")
	flags.IntVar(&o.api.MaxQueue, "max-queue", 64, "`number` of requests that may wait; more are answered 429")
	flags.IntVar(&o.api.MaxTokens, "max-tokens", 0, "`number` of tokens that a completion has at most (default: what the model's context holds)")
	flags.IntVar(&o.api.MaxPromptTokens, "max-prompt-tokens", 0, "`number` of tokens that a prompt has at most (default: what the model's context holds)")
	flags.Int64Var(&body, "max-body", 16, "size of a request in `MiB`")
	flags.DurationVar(&o.idle, "idle-unload", 0, "free the model when it was not used for this `time`, and load it again on demand (default: never)")
	flags.DurationVar(&o.drain, "drain", 30*time.Second, "`time` that requests under way have when the server is told to end")
	flags.BoolVar(&o.pprof, "pprof", false, "profiles at /debug/pprof/, behind the same key")
	flags.TextVar(&o.level, "log-level", slog.LevelInfo, "least `level` of what is logged: debug, info, warn, error")

	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "Serves a Qwen model and its DFlash drafter over HTTP.\nusage: serve [flags]")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
			return nil, err
		}
		return nil, usagef("%w", err)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	o.api.Aliases, o.api.Origins = list(aliases), list(cors)
	if body < 1 || body > maxBody {
		return nil, usagef("-max-body is %d; it lies between 1 and %d", body, maxBody)
	}
	o.api.MaxBody = body << 20
	if err := o.check(flags.Args(), given); err != nil {
		return nil, err
	}
	if o.api.MaxQueue == 0 {
		o.api.MaxQueue = -1 // to the library 0 is its default
	}
	if !given["model"] {
		testdata, err := fixture.Dir()
		if err != nil {
			return nil, usagef("name a model with -model; the demo pair that is used without it lies in a clone of the repository, and this is none: %w", err)
		}
		o.model = filepath.Join(testdata, "tiny-qwen3.5")
	}
	return o, nil
}

// check refuses what can be refused before anything is read.
func (o *options) check(rest []string, given map[string]bool) error {
	for _, name := range []string{"model", "draft", "name", "api-key"} {
		value := map[string]string{"model": o.model, "draft": o.engine.Draft, "name": o.api.Model, "api-key": o.api.APIKey}[name]
		if given[name] && strings.TrimSpace(value) == "" {
			return usagef("-%s is empty", name)
		}
	}
	for _, n := range []struct {
		name         string
		value, least int64
	}{
		{"parallel", int64(o.api.Parallel), 1},
		{"max-queue", int64(o.api.MaxQueue), 0},
		{"max-tokens", int64(o.api.MaxTokens), 0},
		{"max-prompt-tokens", int64(o.api.MaxPromptTokens), 0},
	} {
		if n.value < n.least {
			return usagef("-%s is %d; it is %d at least", n.name, n.value, n.least)
		}
	}
	for name, d := range map[string]time.Duration{"idle-unload": o.idle, "drain": o.drain} {
		if d < 0 {
			return usagef("-%s is %v; it is 0 at least", name, d)
		}
	}
	for _, origin := range o.api.Origins {
		if u, err := url.Parse(origin); origin != "*" && origin != "null" && (err != nil || u.Host == "" || origin != strings.ToLower(u.Scheme+"://"+u.Host)) {
			return usagef("-cors: %q is no origin as browsers send it, such as https://chat.example or http://chat.example:3000", origin)
		}
	}
	_, _, err := net.SplitHostPort(o.addr)
	switch {
	case len(rest) > 0:
		return usagef("unexpected argument %q", rest[0])
	case err != nil:
		return usagef("-addr: %w", err)
	case given["draft"] && !given["model"]:
		return usagef("-draft needs -model: a drafter fits one target only")
	case o.engine.NoDraft && (given["draft"] || given["block"]):
		return usagef("-no-draft excludes -draft and -block")
	}
	return nil
}

// list splits at commas and drops what is empty.
func list(s string) (items []string) {
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
