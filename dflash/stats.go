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
	// after the prompt's that chose tokens.
	Cycles int
	// Drafted counts proposed tokens, Accepted those of them that were handed
	// out.
	Drafted, Accepted int
	// AcceptedPerCycle has one entry per cycle.
	AcceptedPerCycle []int
	// BlockLengths counts the cycles by the number of rows that they drafted and
	// verified, the anchor's included: 1 is a plain step.
	BlockLengths map[int]int
	// AcceptedByPosition counts, from the first draft of a block on, how often the
	// one at that position was handed out.
	AcceptedByPosition []int
	// DraftPaused says why the controller preferred plain steps, from its figures
	// at the end; empty where it never did, or the length was fixed.
	DraftPaused string
	// Prefill is the time until the first token is known, Decode that of the
	// cycles, without the time that the caller spends between tokens.
	Prefill, Decode time.Duration
	// Host, Verify and Commit are parts of Decode: building graphs and reading
	// results, waiting for drafts and their verification, which are one graph, and
	// waiting for what the caches and the drafter take over. Where cycles overlap,
	// as on a GPU, the commit is part of the graph and Verify has its time. What
	// is left of Decode is waiting for others who use the library.
	Host, Verify, Commit time.Duration
	// Seed is what random draws depended on, 0 for greedy decoding.
	Seed uint64
	// Finish is empty when the generation was broken off.
	Finish FinishReason
	// StopText is the one of Request.Stop that ended the generation.
	StopText string
	// DraftOff says why there was no drafting, or why it ended early; empty while
	// the drafter is at hand, though the controller may not use it (DraftPaused).
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

// add counts a cycle.
func (s *Stats) add(c cycle) {
	s.Cycles++
	s.Drafted += c.drafted
	s.Accepted += c.accepted
	s.AcceptedPerCycle = append(s.AcceptedPerCycle, c.accepted)
	if s.BlockLengths == nil {
		s.BlockLengths = map[int]int{}
	}
	s.BlockLengths[c.drafted+1]++
	for i := range c.accepted {
		if i == len(s.AcceptedByPosition) {
			s.AcceptedByPosition = append(s.AcceptedByPosition, 0)
		}
		s.AcceptedByPosition[i]++
	}
	s.Host += c.spent.host
	s.Verify += c.spent.verify
	s.Commit += c.spent.commit
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
