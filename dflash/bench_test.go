package dflash_test

import (
	"crypto/sha256"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
)

// BenchmarkGenerate decodes the reference prompts of each pair, plain and
// drafted in turn, the prompts that the pair knows by heart apart from the
// others: with blocks of the checkpoint's length ("fixed"), as the controller
// chooses, which begins anew with each benchmark ("controller"), as it chooses
// after one pass over the prompts, as in an engine that has been at work ("warm"),
// and with a drafter that is at hand and never used ("idle").
//
// It reports the decode rates (first to last token, the prompt's pass apart),
// their ratio, the tokens per cycle and the share of the drafted time in which
// the host builds graphs, and requires the same ids of both. Take the median of
// several: -count 5.
func BenchmarkGenerate(b *testing.B) {
	for _, pair := range allPairs {
		refs := references(b, pair)
		for _, set := range []struct {
			name    string
			prompts []reference
		}{{"known", refs[:9]}, {"unknown", refs[9:]}} {
			for _, way := range []string{"fixed", "controller", "warm", "idle"} {
				b.Run(pair+"/"+set.name+"/"+way, func(b *testing.B) { benchmarkGenerate(b, pair, set.prompts, way) })
			}
		}
	}
}

// BenchmarkSamplingRules tells how many tokens a cycle gives by shared noise and
// by rejection, at several temperatures, for each pair's reference prompts,
// known by heart and not. Both rules draft at the same places, every third one
// of texts that plain decoding drew: left to themselves they would draw other
// texts, of which some stay with what the pair knows and some do not. Each
// iteration is one seed; nothing is timed.
func BenchmarkSamplingRules(b *testing.B) {
	const rows, tokens, step = 16, 96, 3
	for _, pair := range allPairs {
		e := open(b, pair, dflash.Options{})
		refs := references(b, pair)
		for _, set := range []struct {
			name    string
			prompts []reference
		}{{"known", refs[:9]}, {"unknown", refs[9:]}} {
			for _, temperature := range []float64{0.3, 0.7, 1} {
				b.Run(fmt.Sprintf("%s/%s/T=%.1f", pair, set.name, temperature), func(b *testing.B) {
					s := newSession(b, e)
					var accepted [2]int
					cycles := 0
					o := dflash.Sampling{Temperature: temperature}
					for b.Loop() {
						o.Seed++
						for _, ref := range set.prompts {
							text, _ := run(b, s, dflash.Request{IDs: ref.Prompt, MaxTokens: tokens, NoDraft: true, Sampling: o})
							d, err := dflash.NewDecoder(e.Target(), e.Drafter(), &dflash.DecoderOptions{Sampling: o})
							require.NoError(b, err)
							_, err = d.Prefill(b.Context(), ref.Prompt)
							require.NoError(b, err)
							for at := 0; at+rows <= len(text); at += step {
								cycles++
								for i := range accepted {
									rule := o
									rule.Rejection = i == 1
									n, err := d.Try(b.Context(), rows, rule)
									require.NoError(b, err)
									accepted[i] += n
								}
								v, err := d.Verify(b.Context(), text[at+1:at+step])
								require.NoError(b, err)
								require.Equal(b, text[at+1:at+step+1], v.Choices) // the same seed
								require.NoError(b, d.Commit(b.Context(), step))
							}
							require.NoError(b, d.Close())
						}
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(1+float64(accepted[0])/float64(cycles), "shared-tok/cycle")
					b.ReportMetric(1+float64(accepted[1])/float64(cycles), "rejection-tok/cycle")
					b.ReportMetric(float64(cycles), "cycles")
				})
			}
		}
	}
}

func benchmarkGenerate(b *testing.B, pair string, prompts []reference, way string) {
	e := open(b, pair, dflash.Options{})
	plain, drafted := newSession(b, e), newSession(b, e)
	drafting := dflash.Request{MaxTokens: 96, NoCache: true}
	switch way {
	case "fixed":
		drafting.BlockSize = e.Info().BlockSize
	case "idle":
		drafted.SetRows(func(int) int { return 1 })
	case "warm":
		for _, ref := range prompts {
			run(b, drafted, dflash.Request{IDs: ref.Prompt, MaxTokens: 96, NoCache: true})
		}
	}
	var times [2]time.Duration
	var host time.Duration
	var tokens, cycles int
	for b.Loop() {
		for _, ref := range prompts {
			var sums [2][32]byte
			for i, s := range []*dflash.Session{plain, drafted} {
				r := drafting
				if s == plain {
					r = dflash.Request{MaxTokens: 96, NoCache: true, NoDraft: true}
				}
				r.IDs = ref.Prompt
				ids, _ := run(b, s, r)
				times[i] += s.Stats().Decode
				sums[i] = sha256.Sum256(fmt.Append(nil, ids))
			}
			require.Equal(b, sums[0], sums[1])
			st := drafted.Stats()
			tokens, cycles, host = tokens+st.CompletionTokens-1, cycles+st.Cycles, host+st.Host
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(tokens)/times[0].Seconds(), "plain-tok/s")
	b.ReportMetric(float64(tokens)/times[1].Seconds(), "drafted-tok/s")
	b.ReportMetric(times[0].Seconds()/times[1].Seconds(), "ratio")
	b.ReportMetric(float64(tokens)/float64(cycles), "tok/cycle")
	b.ReportMetric(100*host.Seconds()/times[1].Seconds(), "%host")
}

// BenchmarkReuse asks twice for the first token after a long prompt, of which the
// engine's cache has nothing and then nearly all. It reports how many
// times as long the first takes: what a conversation's next turn is spared.
func BenchmarkReuse(b *testing.B) {
	for _, pair := range allPairs {
		b.Run(pair, func(b *testing.B) {
			e := open(b, pair, dflash.Options{})
			var prompt []int
			for _, ref := range references(b, pair) {
				prompt = append(prompt, ref.Prompt...)
			}
			s := newSession(b, e)
			run(b, s, dflash.Request{IDs: prompt, MaxTokens: 1})
			var times [2]time.Duration
			for b.Loop() {
				for i, cold := range []bool{true, false} {
					s := newSession(b, e)
					run(b, s, dflash.Request{IDs: prompt, MaxTokens: 1, NoCache: cold})
					require.GreaterOrEqual(b, s.Stats().CachedTokens, []int{0, len(prompt) - 64}[i])
					times[i] += s.Stats().Prefill
					require.NoError(b, s.Close())
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(len(prompt)), "prompt")
			b.ReportMetric(times[0].Seconds()/times[1].Seconds(), "cold/known")
		})
	}
}
