package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/godflash/godflash/dflash"
)

// report is everything that was measured; -json prints it as it is. Times are in
// milliseconds, rates in tokens per second from the first token to the last,
// sizes in bytes.
type report struct {
	Machine  machine  `json:"machine"`
	Model    model    `json:"model"`
	Settings settings `json:"settings"`
	Prompts  []result `json:"prompts"`
	Kinds    []kind   `json:"kinds"`
}

// model is what ran.
type model struct {
	Name         string  `json:"name"`
	ModelType    string  `json:"model_type"`
	Quantization string  `json:"quantization,omitempty"`
	Target       folder  `json:"target"`
	Draft        *folder `json:"draft,omitempty"`
	DraftWhy     string  `json:"draft_why,omitempty"`
	DraftBits    int     `json:"draft_bits"` // 0: the file's precision
	BlockSize    int     `json:"block_size"`
	WeightBytes  int64   `json:"weight_bytes"` // in memory, of both
}

// folder is a checkpoint. Files are config.json and the weights.
type folder struct {
	Dir    string `json:"dir"`
	Repo   string `json:"repo,omitempty"`
	Commit string `json:"commit,omitempty"`
	Files  []file `json:"files,omitempty"` // none with -hash=false
}

type file struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

type settings struct {
	Repeats     int     `json:"repeats"`
	WarmUp      int     `json:"warm_up"`
	MaxTokens   int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	Seed        uint64  `json:"seed"`
	BlockSize   int     `json:"block_size,omitempty"` // of -block; without it the library chooses
	Peer        string  `json:"peer,omitempty"`       // its versions
}

// result is one prompt.
type result struct {
	Name         string `json:"name"`
	Kind         string `json:"kind"`
	PromptTokens int    `json:"prompt_tokens"`
	PromptSHA256 string `json:"prompt_sha256"`

	Plain   side  `json:"plain"`
	Drafted side  `json:"drafted"`
	Peer    *side `json:"peer,omitempty"`

	// Speedup is the drafted rate over the plain one, round by round.
	Speedup spread `json:"speedup"`
	// OverPeer is the plain rate over the peer's.
	OverPeer *spread `json:"over_peer,omitempty"`

	Equal bool `json:"equal"` // the ids of plain and drafted, in every round
	// First is where they differ first.
	First *difference `json:"first_difference,omitempty"`
}

// side is one way of decoding a prompt.
type side struct {
	Tokens int    `json:"tokens"`
	SHA256 string `json:"sha256"` // of the ids, see idsHash
	// Steady is false where rounds gave different ids.
	Steady    bool   `json:"steady"`
	Prefill   spread `json:"prefill_ms"`
	Decode    spread `json:"decode_ms"`
	Rate      spread `json:"tokens_per_second"`
	PeakBytes int64  `json:"peak_bytes,omitempty"` // the most of all rounds

	Cycles         int     `json:"cycles,omitempty"`
	TokensPerCycle float64 `json:"tokens_per_cycle,omitempty"`
	// Accepted counts cycles by the number of drafts taken, AcceptedAt[i] those
	// that took at least i+1.
	Accepted   []int  `json:"accepted,omitempty"`
	AcceptedAt []int  `json:"accepted_at,omitempty"`
	DraftOff   string `json:"draft_off,omitempty"`

	ids []int
}

// difference is the first token in which two texts differ.
type difference struct {
	At      int `json:"at"`      // index in the completion
	Plain   int `json:"plain"`   // id, -1 where the text has ended
	Drafted int `json:"drafted"` // likewise
	// Gap is the plain id's score less the drafted one's, both after the common
	// text in one pass of the model. 0 is a tie.
	Gap float64 `json:"gap"`
	// Scored is false where one of the texts had ended.
	Scored bool `json:"scored"`
}

// kind sums up the prompts of a kind, or all of them.
type kind struct {
	Name    string `json:"name"`
	Prompts int    `json:"prompts"`
	Plain   spread `json:"plain_tokens_per_second"`
	Drafted spread `json:"drafted_tokens_per_second"`
	Speedup spread `json:"speedup"`
	// Peer is the other software's rate.
	Peer           *spread `json:"peer_tokens_per_second,omitempty"`
	OverPeer       *spread `json:"over_peer,omitempty"`
	TokensPerCycle float64 `json:"tokens_per_cycle"`
	Equal          int     `json:"equal"` // prompts whose texts are the same
	Doubt          string  `json:"doubt,omitempty"`
}

// sample is one generation.
type sample struct {
	ids              []int
	prefill, decode  float64 // ms
	peak             int64
	cycles           int
	acceptedPerCycle []int
	draftOff         string
}

func sampleOf(ids []int, s dflash.Stats) sample {
	return sample{
		ids: ids, prefill: float64(s.Prefill.Microseconds()) / 1e3, decode: float64(s.Decode.Microseconds()) / 1e3,
		peak: s.PeakBytes, cycles: s.Cycles, acceptedPerCycle: s.AcceptedPerCycle, draftOff: s.DraftOff,
	}
}

// rate is tokens per second after the first token.
func (s sample) rate() float64 {
	if s.decode <= 0 || len(s.ids) < 2 {
		return 0
	}
	return float64(len(s.ids)-1) / s.decode * 1e3
}

// sideOf sums up the rounds of one way of decoding.
func sideOf(rounds []sample) side {
	last := rounds[len(rounds)-1]
	s := side{Tokens: len(last.ids), SHA256: idsHash(last.ids), Steady: true, Cycles: last.cycles, DraftOff: last.draftOff, ids: last.ids}
	var prefill, decode, rate []float64
	for _, r := range rounds {
		prefill, decode, rate = append(prefill, r.prefill), append(decode, r.decode), append(rate, r.rate())
		s.PeakBytes = max(s.PeakBytes, r.peak)
		s.Steady = s.Steady && idsHash(r.ids) == s.SHA256
	}
	s.Prefill, s.Decode, s.Rate = spreadOf(prefill), spreadOf(decode), spreadOf(rate)
	if last.cycles > 0 {
		s.TokensPerCycle = float64(len(last.ids)-1) / float64(last.cycles)
	}
	s.Accepted, s.AcceptedAt = histogram(last.acceptedPerCycle)
	return s
}

// histogram counts cycles by the number of drafts that they took, and for each
// position of the block those that took the draft there.
func histogram(perCycle []int) (counts, at []int) {
	for _, n := range perCycle {
		for len(counts) <= n {
			counts = append(counts, 0)
		}
		counts[n]++
		for len(at) < n {
			at = append(at, 0)
		}
		for i := range n {
			at[i]++
		}
	}
	return counts, at
}

// idsHash is the SHA-256 of the ids in decimal, each followed by a line end.
func idsHash(ids []int) string {
	h := sha256.New()
	for _, id := range ids {
		fmt.Fprintf(h, "%d\n", id)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// firstDifference is the index of the first id in which two texts differ, -1 for
// equal ones.
func firstDifference(a, b []int) int {
	for i := range max(len(a), len(b)) {
		if i >= len(a) || i >= len(b) || a[i] != b[i] {
			return i
		}
	}
	return -1
}

// all is the name of the kind that holds every prompt.
const all = "all"

// sumUp makes the lines of the kinds, and of all prompts where there are several
// kinds. A kind's rate in a round is all its tokens over all its time.
func sumUp(prompts []result) []kind {
	var names []string
	seen := map[string]bool{}
	for _, p := range prompts {
		if !seen[p.Kind] {
			seen[p.Kind] = true
			names = append(names, p.Kind)
		}
	}
	if len(names) > 1 {
		names = append(names, all)
	}
	var out []kind
	for _, name := range names {
		var of []result
		for _, p := range prompts {
			if p.Kind == name || name == all {
				of = append(of, p)
			}
		}
		out = append(out, kindOf(name, of))
	}
	return out
}

func kindOf(name string, of []result) kind {
	k := kind{Name: name, Prompts: len(of)}
	tokens, cycles := 0, 0
	for _, p := range of {
		if p.Equal {
			k.Equal++
		}
		tokens, cycles = tokens+p.Drafted.Tokens-1, cycles+p.Drafted.Cycles
	}
	if cycles > 0 {
		k.TokensPerCycle = float64(tokens) / float64(cycles)
	}
	rates := func(of []result, which func(result) *side) []float64 {
		var out []float64
		for round := range which(of[0]).Decode.Values {
			tokens, ms := 0, 0.0
			for _, p := range of {
				tokens += which(p).Tokens - 1
				ms += which(p).Decode.Values[round]
			}
			if ms > 0 {
				out = append(out, float64(tokens)/ms*1e3)
			}
		}
		return out
	}
	plain := rates(of, func(p result) *side { return &p.Plain })
	drafted := rates(of, func(p result) *side { return &p.Drafted })
	k.Plain, k.Drafted, k.Speedup = spreadOf(plain), spreadOf(drafted), spreadOf(ratios(drafted, plain))
	k.Doubt = k.Speedup.doubt()
	if of[0].Peer != nil {
		peer := rates(of, func(p result) *side { return p.Peer })
		rate, over := spreadOf(peer), spreadOf(ratios(plain, peer))
		k.Peer, k.OverPeer = &rate, &over
	}
	return k
}

// errDiffer is returned where texts differ and must not.
var errDiffer = errors.New("decoding with drafts gave other ids than plain decoding; on the CPU this is a bug, please report it")

// wrong returns errDiffer for different texts on a CPU. GPUs choose kernels by
// the number of rows, so there a near-tie may fall the other way.
func (r *report) wrong() error {
	if r.Machine.Device != "cpu" {
		return nil
	}
	var names []string
	for _, p := range r.Prompts {
		if !p.Equal {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%w (%s)", errDiffer, strings.Join(names, ", "))
}
