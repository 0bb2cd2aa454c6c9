package dflash

import "time"

// FinishReason says why a generation ended.
type FinishReason string

const (
	// FinishStop: an end-of-sequence id or one of the request's StopIDs.
	FinishStop FinishReason = "stop"
	// FinishLength: MaxTokens or the end of the model's context.
	FinishLength FinishReason = "length"
)

// Stats describe one generation, complete or broken off.
type Stats struct {
	PromptTokens int
	// CachedTokens counts the prompt's tokens whose state was reused.
	CachedTokens int
	// ReasoningTokens counts completion tokens inside the thought.
	ReasoningTokens int
	// CompletionTokens counts the tokens handed out, the end-of-sequence token
	// included.
	CompletionTokens int
	// Cycles is the number of decode cycles: forward passes of the target
	// after the prompt's.
	Cycles int
	// Drafted counts proposed tokens, Accepted those of them that were handed
	// out.
	Drafted, Accepted int
	// AcceptedPerCycle has one entry per cycle.
	AcceptedPerCycle []int
	// Prefill is the time until the first token is known, Decode that of the
	// cycles, without the time that the caller spends between tokens.
	Prefill, Decode time.Duration
	// Seed is what random draws depended on, 0 for greedy decoding.
	Seed uint64
	// Finish is empty when the generation was broken off.
	Finish FinishReason
	// DraftOff says why there was no drafting, or why it ended early; empty
	// when every cycle that had room for a draft had one.
	DraftOff string
	// PeakBytes is the most memory that MLX had in use since the generation
	// began, weights included; 0 for one that was broken off.
	PeakBytes int64
}

// TokensPerCycle is (CompletionTokens-1) / Cycles: the first token comes from
// the prompt's pass. It is 0 without cycles.
func (s Stats) TokensPerCycle() float64 {
	if s.Cycles == 0 {
		return 0
	}
	return float64(s.CompletionTokens-1) / float64(s.Cycles)
}

// TokensPerSecond is the decode rate (CompletionTokens-1) / Decode, 0 where
// nothing was decoded.
func (s Stats) TokensPerSecond() float64 {
	if s.Decode <= 0 || s.CompletionTokens < 2 {
		return 0
	}
	return float64(s.CompletionTokens-1) / s.Decode.Seconds()
}
