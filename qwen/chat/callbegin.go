package chat

import "strings"

// CallBegin is how a reply begins that calls a tool, in the form that the
// template writes calls in: up to the tool's arguments or, where name is empty,
// up to its name. ok is false for a template that writes no calls.
func (t *Template) CallBegin(name string) (text string, ok bool) {
	switch {
	case strings.Contains(t.source, tagFunction) && name == "":
		// The = is left to the model: tokenizers join it to the name.
		return tagCall + "\n" + strings.TrimSuffix(tagFunction, "="), true
	case strings.Contains(t.source, tagFunction):
		return tagCall + "\n" + tagFunction + name + ">\n", true
	case strings.Contains(t.source, tagCall) && name == "":
		return tagCall + "\n{\"name\": \"", true
	case strings.Contains(t.source, tagCall):
		// So is the space after the colon, which they join to the brace.
		return tagCall + "\n{\"name\": " + string(quote(name)) + ", \"arguments\":", true
	}
	return "", false
}

// CallsInXML says whether the template writes calls in the form of Qwen3.5,
// <function=…> with a <parameter=…> for each argument, and not in JSON.
func (t *Template) CallsInXML() bool { return strings.Contains(t.source, tagFunction) }
