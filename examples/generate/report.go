package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen/tokenizer"
)

// result is what -json prints.
type result struct {
	IDs          []int               `json:"ids"` // the end-of-sequence id included
	Text         string              `json:"text"`
	FinishReason dflash.FinishReason `json:"finish_reason"`
	StopText     string              `json:"stop_text,omitempty"` // the -stop that ended it
	LogProbs     []resultToken       `json:"logprobs,omitempty"`  // with -logprobs, one for each id
	Stats        resultStats         `json:"stats"`
}

type resultToken struct {
	resultProb
	Drafted bool         `json:"drafted"` // the drafter proposed it
	Top     []resultProb `json:"top"`
}

type resultProb struct {
	ID      int     `json:"id"`
	Text    string  `json:"text"` // of this token alone: half a letter is U+FFFD
	LogProb float64 `json:"logprob"`
}

func resultTokens(tokens []dflash.Token, tok *tokenizer.Tokenizer) []resultToken {
	prob := func(id int, p float64) resultProb {
		text, _ := tok.Decode([]int{id}) // rows of a padded vocabulary stand for no text
		return resultProb{id, text, p}
	}
	var out []resultToken
	for _, t := range tokens {
		r := resultToken{prob(t.ID, t.LogProb), t.Drafted, []resultProb{}}
		for _, top := range t.Top {
			r.Top = append(r.Top, prob(top.ID, top.LogProb))
		}
		out = append(out, r)
	}
	return out
}

type resultStats struct {
	PromptTokens     int         `json:"prompt_tokens"`
	CompletionTokens int         `json:"completion_tokens"`
	ReasoningTokens  int         `json:"reasoning_tokens"`
	Cycles           int         `json:"cycles"`
	Drafted          int         `json:"drafted"`
	Accepted         int         `json:"accepted"`
	TokensPerCycle   float64     `json:"tokens_per_cycle"`
	AcceptedPerCycle []int       `json:"accepted_per_cycle"`
	BlockLengths     map[int]int `json:"block_lengths"` // cycles by rows
	PrefillMS        float64     `json:"prefill_ms"`
	DecodeMS         float64     `json:"decode_ms"`
}

func writeJSON(w io.Writer, r reply, tok *tokenizer.Tokenizer) error {
	s := r.stats
	lengths := map[int]int{} // never null
	maps.Copy(lengths, s.BlockLengths)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(result{
		IDs: r.ids, Text: r.text, FinishReason: s.Finish, StopText: s.StopText, LogProbs: resultTokens(r.tokens, tok),
		Stats: resultStats{
			PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, ReasoningTokens: s.ReasoningTokens,
			Cycles: s.Cycles, Drafted: s.Drafted, Accepted: s.Accepted,
			TokensPerCycle:   s.TokensPerCycle(),
			AcceptedPerCycle: append([]int{}, s.AcceptedPerCycle...), // never null
			BlockLengths:     lengths,
			PrefillMS:        milliseconds(s.Prefill), DecodeMS: milliseconds(s.Decode),
		},
	})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// reportStats writes the line of statistics, for a generation that broke off
// too.
func reportStats(w io.Writer, s dflash.Stats) {
	if s.CompletionTokens == 0 {
		return
	}
	way := "with drafts"
	switch {
	case s.DraftOff != "" && s.Drafted > 0:
		way = "with drafts at first (" + s.DraftOff + ")"
	case s.DraftOff != "":
		way = "no drafts (" + s.DraftOff + ")"
	}
	if s.DraftPaused != "" {
		way += " (" + s.DraftPaused + ")"
	}
	if s.Seed != 0 {
		way += fmt.Sprintf(", seed %d", s.Seed)
	}
	fmt.Fprintf(w, "%s: %d tokens, %.2f tokens per cycle, %.1f tok/s; prompt of %d tokens in %.0f ms\n",
		way, s.CompletionTokens, s.TokensPerCycle(), s.TokensPerSecond(), s.PromptTokens, milliseconds(s.Prefill))
}

// reportComparison writes how the two ways compare. On the CPU their ids must
// be identical. GPUs choose kernels by the number of rows, so there a near-tie
// may fall the other way.
func reportComparison(w io.Writer, device mlx.DeviceType, drafted, plain reply) error {
	if rate := plain.stats.TokensPerSecond(); rate > 0 {
		fmt.Fprintf(w, "%.2f × the rate of plain decoding; ", drafted.stats.TokensPerSecond()/rate)
	}
	if slices.Equal(drafted.ids, plain.ids) {
		fmt.Fprintf(w, "all %d ids are identical\n", len(plain.ids))
		return nil
	}
	at := 0
	for at < min(len(drafted.ids), len(plain.ids)) && drafted.ids[at] == plain.ids[at] {
		at++
	}
	fmt.Fprintf(w, "the ids differ from token %d on\n", at+1)
	if device == mlx.DeviceCPU {
		return fmt.Errorf("decoding with drafts gave other ids than plain decoding; on the CPU this is a bug, please report it")
	}
	return nil
}
