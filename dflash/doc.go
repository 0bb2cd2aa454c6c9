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
// every token is still the target's choice at verification.
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
// # Goroutines
//
// Engines may be used from any goroutine; a Session and a Decoder serve one
// generation at a time. All of MLX's work happens on the library's own thread,
// one hop per cycle or prefill chunk, which is also how soon a cancelled
// context is noticed.
package dflash
