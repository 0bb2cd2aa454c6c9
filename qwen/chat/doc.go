// Package chat turns messages into the prompt text that a model was trained on,
// with the chat template that lies beside its weights.
//
// Templates are Jinja as Hugging Face's transformers runs it (trim_blocks and
// lstrip_blocks on, raise_exception, a tojson that escapes nothing but what JSON
// needs); the text is the same byte for byte. Objects in tool schemas and tool
// arguments keep the order of their keys.
//
// The way back is a Splitter: it takes the text of a reply as it is written and
// tells reasoning, content and tool calls apart.
//
// RenderSegments keeps control tokens that stand inside messages apart from those
// that the template writes.
//
// A template comes with a model and is run as code. Render bounds what it can
// do: loop passes, depth of macro calls, the size of ranges and of the result;
// a panic of the engine becomes an error. What it does not bound is the length
// of one string that a template doubles again and again, nor the comparison of
// two values that contain themselves. Take templates from where you would take
// weights.
package chat
