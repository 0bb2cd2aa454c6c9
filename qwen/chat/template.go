package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ardanlabs/jinja"
)

// Errors that this package wraps.
var (
	// ErrNoTemplate says that a model's folder has no chat template.
	ErrNoTemplate = errors.New("no chat template")
	// ErrLimit says that a template did more than Render lets it do.
	ErrLimit = errors.New("chat template exceeds a limit")
	// ErrArguments says that a tool call's arguments are not a JSON object.
	ErrArguments = errors.New("arguments of a tool call must be a JSON object")
)

var errPrivate = errors.New("private characters of plane 16 (U+100000 and up) are not supported in a template")

// TemplateError is what a template says when it refuses the messages, with
// raise_exception: a mistake of the caller, not of the program.
type TemplateError struct {
	Message string
}

func (e *TemplateError) Error() string { return "chat: the template refuses: " + e.Message }

// Options are what a template takes besides the messages. The zero value, and
// nil, is no tools, no generation prompt, and the template's default thinking.
type Options struct {
	// Tools are JSON objects, shown to the model as they stand but for spacing.
	Tools []json.RawMessage
	// AddGenerationPrompt ends the text where the assistant's answer begins.
	AddGenerationPrompt bool
	// EnableThinking sets enable_thinking; nil leaves it undefined, which most
	// templates take for true.
	EnableThinking *bool
	// Verbatim gives the template what the messages hold, as transformers does.
	// Without it, content parts are joined to one text, because Qwen3's template
	// drops lists, and the error wraps ErrNotText when one is an image or the
	// like; and tool arguments that are a JSON string, as OpenAI's API sends
	// them, become the object that it holds, because Qwen3.5's templates refuse
	// strings.
	Verbatim bool
	// Kwargs are further variables of the template: nil, bool, string,
	// json.RawMessage, or what json.Marshal takes.
	Kwargs map[string]any
}

// Template is a compiled chat template. It does not change and may be used by
// several goroutines at once.
type Template struct {
	source   string
	specials map[string]string
	compiled *jinja.Template
}

// Parse compiles a template's source. Specials are the tokenizer's special
// tokens by the names that templates use: bos_token, eos_token and so on.
// Syntax, filters and tests that the engine does not know are errors here, not
// when the template is rendered.
func Parse(source string, specials map[string]string) (*Template, error) {
	t, err := parse(source, specials)
	if err != nil {
		return nil, fmt.Errorf("chat: template: %w", err)
	}
	return t, nil
}

func parse(source string, specials map[string]string) (_ *Template, err error) {
	defer recovered(&err)
	prepared, pieces, err := prepare(source)
	if err != nil {
		return nil, err
	}
	compiled, err := jinja.Compile(prepared)
	if err != nil {
		return nil, err
	}
	for name, token := range specials {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("special token: %w", err)
		}
		if strings.ContainsFunc(token, isMark) {
			return nil, fmt.Errorf("special token %s: %w", name, errPrivate)
		}
	}
	if strings.ContainsFunc(source, isMark) {
		return nil, errPrivate
	}
	filters, tests := names(pieces)
	if err := probe("filter", "{{ x | %s }}", filters); err != nil {
		return nil, err
	}
	if err := probe("test", "{{ x is %s }}", tests); err != nil {
		return nil, err
	}
	return &Template{source: source, specials: maps.Clone(specials), compiled: compiled}, nil
}

// probe asks the engine which of the names it knows: it looks them up only when
// it runs into them.
func probe(what, format string, used []string) error {
	slices.Sort(used)
	for _, name := range slices.Compact(used) {
		t, err := jinja.Compile(fmt.Sprintf(format, name))
		if err != nil {
			continue // not a name: the template's own syntax, already accepted
		}
		_, err = t.RenderValues(nil)
		if err != nil && strings.Contains(err.Error(), "unknown "+what) {
			return fmt.Errorf("unknown %s %q", what, name)
		}
	}
	return nil
}

// Source is the template's text as it was given to Parse.
func (t *Template) Source() string { return t.source }

// Render makes the prompt text. A template's own refusal is a *TemplateError;
// other errors wrap ErrLimit, ErrArguments or ErrNotText, or say what the engine could not
// do with the messages.
func (t *Template) Render(messages []Message, opts *Options) (string, error) {
	segments, err := t.render(&values{}, messages, opts)
	if err != nil {
		return "", err
	}
	return join(segments), nil
}

func (t *Template) render(v *values, messages []Message, opts *Options) ([]Segment, error) {
	segments, err := t.run(v, messages, opts)
	var refused *TemplateError
	if err != nil && !errors.As(err, &refused) {
		err = fmt.Errorf("chat: rendering the template: %w", err)
	}
	return segments, err
}

func (t *Template) run(v *values, messages []Message, opts *Options) (_ []Segment, err error) {
	defer recovered(&err)
	if opts == nil {
		opts = &Options{}
	}
	data, err := t.variables(v, messages, opts)
	if err == nil {
		err = v.err
	}
	if err != nil {
		return nil, err
	}
	g := &guard{}
	g.install(data)
	text, err := t.compiled.RenderValues(data)
	if g.err != nil {
		// The engine may have wrapped it, or caught it.
		err = g.err
	}
	var refused *TemplateError
	if errors.As(err, &refused) {
		return nil, &TemplateError{Message: join(v.finish(refused.Message))}
	}
	if err != nil {
		return nil, err
	}
	if len(text) > maxOutput {
		return nil, fmt.Errorf("%w: %d bytes of text, at most %d are allowed", ErrLimit, len(text), maxOutput)
	}
	return v.finish(text), nil
}

// variables are the template's variables, named as transformers names them.
func (t *Template) variables(v *values, messages []Message, opts *Options) (map[string]jinja.Value, error) {
	data := map[string]jinja.Value{}
	for name, token := range t.specials {
		data[name] = jinja.NewString(token)
	}
	for _, name := range slices.Sorted(maps.Keys(opts.Kwargs)) {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("kwargs: %w", err)
		}
		value, err := v.goValue(opts.Kwargs[name])
		if err != nil {
			return nil, fmt.Errorf("kwargs: %s: %w", name, err)
		}
		if name == "enable_thinking" && !value.IsBool() {
			return nil, fmt.Errorf("kwargs: enable_thinking must be true or false")
		}
		data[name] = value
	}
	if opts.EnableThinking != nil {
		if _, twice := opts.Kwargs["enable_thinking"]; twice {
			return nil, errors.New("enable_thinking is given twice, in EnableThinking and in Kwargs")
		}
		data["enable_thinking"] = jinja.NewBool(*opts.EnableThinking)
	}
	list := make([]jinja.Value, len(messages))
	for i, m := range messages {
		value, err := v.message(m, opts.Verbatim)
		if err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
		list[i] = value
	}
	data["messages"] = jinja.NewList(list)
	data["tools"] = jinja.None()
	if len(opts.Tools) > 0 {
		tools := make([]jinja.Value, len(opts.Tools))
		for i, tool := range opts.Tools {
			value, err := v.json(tool)
			if err != nil {
				return nil, fmt.Errorf("tool %d: %w", i, err)
			}
			if !value.IsDict() {
				return nil, fmt.Errorf("tool %d: want a JSON object, not %.40s", i, tool)
			}
			tools[i] = value
		}
		data["tools"] = jinja.NewList(tools)
	}
	data["documents"] = jinja.None()
	data["add_generation_prompt"] = jinja.NewBool(opts.AddGenerationPrompt)
	return data, nil
}

// checkName refuses variables that would take the place of Render's own.
func checkName(name string) error {
	switch name {
	case "messages", "tools", "documents", "add_generation_prompt", "raise_exception", "range":
		return fmt.Errorf("the name %q is taken", name)
	}
	if name == "" || strings.HasPrefix(name, "__") || strings.ContainsFunc(name, func(r rune) bool { return !identifier(r) }) {
		return fmt.Errorf("%q cannot be the name of a template variable", name)
	}
	return nil
}
