package dflash

import "time"

// FinishReason says why a generation ended.
type FinishReason string

const (
	// FinishStop: an end-of-sequence id, or one of the request's StopIDs or Stop
	// texts.
	FinishStop FinishReason = "stop"
	// FinishLength: MaxTokens or the end of the model's context.
	FinishLength FinishReason = "length"
)

// Stats describe one generation, complete or broken off.
type Stats struct {
	PromptTokens int
	// CachedTokens counts the prompt's tokens whose state was reused.
	CachedTokens int
	// ReasoningTokens counts completion tokens inside the thought, its tags
	// included where they are not in the prompt, for requests with Prompt or
	// Messages.
	ReasoningTokens int
	// ForcedTokens counts the completion tokens that ToolChoice and
	// ThinkingBudget put there.
	ForcedTokens int
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
	// StopText is the one of Request.Stop that ended the generation.
	StopText string
	// DraftOff says why there was no drafting, or why it ended early; empty
	// when every cycle that had room for a draft had one.
	DraftOff string
	// PeakBytes is the most memory that MLX had in use since the generation
	// began, weights included; 0 for one that was broken off.
	PeakBytes int64

	begun bool // the first tokens are forced ones
}

// decoded is the number of tokens that the cycles gave.
func (s Stats) decoded() int {
	n := s.CompletionTokens - s.ForcedTokens
	if !s.begun {
		n-- // from the prompt's pass
	}
	return max(0, n)
}

// TokensPerCycle is the number of tokens that a cycle gave on average. Neither
// the first token, which comes from the prompt's pass, nor forced ones count.
// It is 0 without cycles.
func (s Stats) TokensPerCycle() float64 {
	if s.Cycles == 0 {
		return 0
	}
	return float64(s.decoded()) / float64(s.Cycles)
}

// TokensPerSecond is the decode rate, of the same tokens in Decode; 0 where
// nothing was decoded.
func (s Stats) TokensPerSecond() float64 {
	if s.Decode <= 0 {
		return 0
	}
	return float64(s.decoded()) / s.Decode.Seconds()
}
