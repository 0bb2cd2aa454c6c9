// Package openai serves an engine over HTTP, in the form of OpenAI's API
// (chat completions, completions, responses, models) and of Anthropic's
// (messages), streaming or not.
//
//	http.Handle("/", openai.NewHandler(engine, nil))
//
// Requests pass a bounded queue: what exceeds it is answered 429. A client that
// goes away ends its generation within one decode cycle. What a request asks
// for and is not done is refused by name, never ignored; docs/openai.md has the
// table of parameters.
//
// The handler is no gateway: it does not count tokens per key, keep
// conversations, or speak TLS.
package openai
