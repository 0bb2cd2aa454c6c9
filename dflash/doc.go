// Package dflash generates text with Qwen models through DFlash speculative
// decoding, several times faster than one token at a time and with the same
// result.
//
// A small drafter proposes a block of tokens in one pass: from the last token
// and a row of mask tokens, conditioned on hidden states tapped from the
// target's layers (DFlash, arXiv 2602.06036). The target checks the whole
// block in one forward pass, the longest right prefix is kept, and the state
// of the rest is given back. Every token that leaves is the target's own
// choice.
//
//	engine, err := dflash.Open(ctx, "path/to/model", nil)
//	…
//	defer engine.Close()
//	session, err := engine.NewSession()
//	…
//	defer session.Close()
//	for token, err := range session.Generate(ctx, dflash.Request{Prompt: "Why is the sky blue?"}) {
//		if err != nil {
//			return err
//		}
//		fmt.Print(token.Text)
//	}
//	fmt.Println(session.Stats().TokensPerCycle())
//
// # Replies
//
// Token.Text is the text as the model writes it, up to a stop text. For prompts
// through the chat template Token.Deltas is the same text split into reasoning,
// content and tool calls; chat.Reply puts it together:
//
//	var reply chat.Reply
//	for token, err := range session.Generate(ctx, request) {
//		…
//		reply.Add(token.Deltas...)
//	}
//	messages = append(messages, reply.Message())
//
// # Exactness
//
// Greedy output with a drafter equals greedy output without one. On the CPU
// that holds bit for bit, whatever the block length and the prompt. GPUs pick
// kernels by the number of rows, so a near-tie may fall the other way there:
// every token is still the target's choice at verification. On CUDA the kernels
// for dense models in bfloat16 and for models in 4 bits give a row the same bits
// in any block, where their sizes suit.
//
// Sampled output has the target's distribution, and a seed gives the same text
// with a drafter and without one, with the same reservation; see Sampling.
//
// # Below the session
//
// A Decoder is one sequence driven by hand: Prefill, then Propose, Verify and
// Commit. Drafts may come from anywhere. Target is the interface that a model
// family must satisfy; package qwen's models do through QwenTarget.
//
// # Sessions that go on
//
// A session keeps its text and the model's state of it. Request.Continue appends
// to the text; a request without it begins a new one, and takes up the state of
// the longest beginning that it shares with the session's text or with a text in
// the engine's cache of prefixes. Stats.CachedTokens counts what was not computed
// again. How a generation ended does not matter, and what was reused does not
// show: on the CPU the state has the bits of a fresh run of the whole text. On a
// GPU reuse cuts the prompt into other chunks, with the reservation above.
//
//	for token, err := range session.Generate(ctx, dflash.Request{Prompt: "Why?"}) { … }
//	other, err := session.Branch(ctx)
//	for token, err := range session.Generate(ctx, dflash.Request{Prompt: "And then?", Continue: true}) { … }
//	for token, err := range other.Generate(ctx, dflash.Request{Prompt: "Are you sure?", Continue: true}) { … }
//
// Hybrid models have recurrent layers, whose state cannot be cut. It is kept where
// prompts' chunks and turns end, and from the nearest such place before the
// wanted one tokens are run again.
//
// # Goroutines
//
// Engines may be used from any goroutine; a Session and a Decoder serve one
// generation at a time. All of MLX's work happens on the library's own thread,
// one hop per cycle or prefill chunk, which is also how soon a cancelled
// context is noticed; while a call waits for its turn it is noticed at once.
//
// Hops are served in the order in which they are asked for, and a session asks
// for the next when it has the result of the one before. So the generations of a
// process take turns, round by round, and a long prompt is as many turns as it has
// chunks: while one waits, each of the others has one turn at most.
package dflash
