package controller

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Costs in plain steps as they are on a CPU with and without a matrix product
// that reads weights once per block, on GPUs, and for a mixture of experts,
// where each row wakes up experts of its own.
var curves = map[string]curve{
	"CPU":           func(r int) float64 { return 1.3 + 0.17*float64(r) },
	"row by row":    func(r int) float64 { return 1.1 + 0.8*float64(r) },
	"GPU":           func(r int) float64 { return 1.28 },
	"MoE":           func(r int) float64 { return 0.9 + 0.55*math.Pow(float64(r), 0.75) },
	"GPU, long way": func(r int) float64 { return 1.15 + 0.06*float64(r) },
}

func always(p float64) text { return func(int, int) float64 { return p } }

// On a text that stays as it is, the time against the best fixed number of
// rows. Without hope that is plain decoding.
func TestStationary(t *testing.T) {
	for _, c := range []struct {
		name string
		text text
		most float64
	}{
		{"noise", always(0), 1.03},
		{"bad", always(0.2), 1.03},
		{"middle", always(0.7), 1.04},
		{"falling", func(_, i int) float64 { return max(0.9-0.05*float64(i), 0.2) }, 1.04},
		{"good", always(0.97), 1.02},
		{"perfect", always(1), 1.02},
	} {
		for name, cost := range curves {
			for lag := range 2 {
				t.Run(fmt.Sprintf("%s/%s/lag %d", c.name, name, lag), func(t *testing.T) {
					ratio := compare(world{cost: cost, text: c.text, n: 1500, lag: lag, noise: 0.05}, (*world).bestFixed)
					require.Less(t, ratio, c.most)
				})
			}
		}
	}
}

// On a text that the drafter knows, then does not, then knows again, the time
// against one who knows each stretch's acceptance beforehand.
func TestChange(t *testing.T) {
	text := func(at, _ int) float64 {
		if at/1000%2 == 0 {
			return 0.97
		}
		return 0.2
	}
	for name, cost := range curves {
		for lag := range 2 {
			t.Run(fmt.Sprintf("%s/lag %d", name, lag), func(t *testing.T) {
				ratio := compare(world{cost: cost, text: text, n: 3000, lag: lag, noise: 0.05}, (*world).oracle)
				require.Less(t, ratio, 1.05)
			})
		}
	}
}

// compare is the mean time of twenty generations, each with a controller of its
// own, as a multiple of another way's time.
func compare(w world, other func(*world) float64) float64 {
	var got, want float64
	for w.seed = range 20 {
		run := New(Options{Block: 16}).Start()
		got += w.run(func(limit, _ int) int { return run.Next(limit) }, run.Record)
		want += other(&w)
	}
	return got / want
}

// Requests of a few tokens each profit from those before, and hopeless ones do
// not pay for a new start each time.
func TestManyRequests(t *testing.T) {
	for name, c := range map[string]struct {
		text text
		most float64
	}{"noise": {always(0), 1.03}, "good": {always(0.97), 1.03}} {
		t.Run(name, func(t *testing.T) {
			got, fixed := 0.0, map[int]float64{}
			for first := range uint64(5) {
				ctl := New(Options{Block: 16})
				for seed := range uint64(40) {
					w := world{cost: curves["CPU"], text: c.text, n: 32, noise: 0.05, seed: 5*seed + first}
					run := ctl.Start()
					got += w.run(func(limit, _ int) int { return run.Next(limit) }, run.Record)
					for _, rows := range ctl.costs.rungs {
						fixed[rows] += w.fixed(rows)
					}
				}
			}
			require.Less(t, got/slices.Min(slices.Collect(maps.Values(fixed))), c.most)
		})
	}
}

// However long nothing was right, blocks come back soon after the text becomes
// predictable.
func TestAdapts(t *testing.T) {
	for name, most := range map[string]int{"CPU": 200, "GPU": 100, "MoE": 200, "GPU, long way": 100} {
		for seed := range uint64(10) {
			known := 4000
			text := func(at, _ int) float64 {
				if at < known {
					return 0
				}
				return 0.97
			}
			w := world{cost: curves[name], text: text, n: known + 600, noise: 0.05, seed: seed}
			run := New(Options{Block: 16}).Start()
			long := 0
			w.run(func(limit, at int) int {
				rows := run.Next(limit)
				if rows >= 8 && at >= known && long == 0 {
					long = at - known
				}
				return rows
			}, run.Record)
			require.Positive(t, long, name)
			require.LessOrEqual(t, long, most, name)
		}
	}
}

// It starts with the checkpoint's block, stays on the ladder, and within what
// is left.
func TestLadder(t *testing.T) {
	for block, want := range map[int][]int{2: {1, 2}, 7: {1, 2, 4, 7}, 8: {1, 2, 4, 8}, 16: {1, 2, 4, 8, 16}} {
		c := New(Options{Block: block})
		require.Equal(t, want, c.costs.rungs)
		run := c.Start()
		require.Equal(t, block, run.Next(1000))
		require.Equal(t, 1, run.Next(1))
		for i := range 400 {
			rows := run.Next(1000)
			require.Contains(t, want, rows)
			run.Record(rows, min(rows-1, i%5), time.Duration(10+rows)*time.Millisecond)
			for limit := 1; limit < block+2; limit++ {
				require.LessOrEqual(t, run.Next(limit), limit)
			}
		}
	}
}

// A first duration with a compilation in it does not spoil a length for good,
// and neither does a pause of the machine.
func TestOutliers(t *testing.T) {
	for _, spike := range []struct {
		name string
		at   func(cycle int, seen int) bool
		skip bool
	}{
		{"compilation", func(_, seen int) bool { return seen == 0 }, true},
		{"pauses", func(cycle, _ int) bool { return cycle%29 == 5 }, false},
	} {
		t.Run(spike.name, func(t *testing.T) {
			w := world{cost: curves["GPU"], text: always(0.9), n: 2000, noise: 0.05, seed: 3}
			run := New(Options{Block: 16, SkipFirst: spike.skip}).Start()
			seen, cycle := map[int]int{}, 0
			got := w.run(func(limit, _ int) int { return run.Next(limit) }, func(rows, accepted int, took time.Duration) {
				if spike.at(cycle, seen[rows]) {
					took *= 200
				}
				cycle++
				seen[rows]++
				run.Record(rows, accepted, took)
			})
			require.Less(t, got/w.bestFixed(), 1.05)
		})
	}
}

// Where other programs take the processor, durations say little: they are too
// long by up to several times. That costs some speed and no more.
func TestBusyMachine(t *testing.T) {
	for _, c := range []struct {
		name string
		text text
		most float64
	}{{"noise", always(0), 1.06}, {"good", always(0.97), 1.1}} {
		t.Run(c.name, func(t *testing.T) {
			var got, want float64
			for seed := range uint64(10) {
				rng := rand.New(rand.NewPCG(seed, 3))
				w := world{cost: curves["CPU"], text: c.text, n: 1500, seed: seed}
				run := New(Options{Block: 16}).Start()
				got += w.run(func(limit, _ int) int { return run.Next(limit) }, func(rows, accepted int, took time.Duration) {
					run.Record(rows, accepted, time.Duration(float64(took)*math.Exp(0.5*math.Abs(rng.NormFloat64()))))
				})
				want += w.bestFixed()
			}
			require.Less(t, got/want, c.most)
		})
	}
}

// A sequence whose cycles all grow slower, as with a longer context, keeps its
// choice: the costs that are not measured meanwhile move along.
func TestDrift(t *testing.T) {
	run := New(Options{Block: 16}).Start()
	var rows []int
	for i := range 1200 {
		n := run.Next(1000)
		rows = append(rows, n)
		steps := 1.0
		if n > 1 {
			steps = curves["CPU"](n)
		}
		run.Record(n, 0, time.Duration(steps*(1+float64(i)/100)*float64(time.Millisecond)))
	}
	drafted := slices.DeleteFunc(rows[200:], func(n int) bool { return n == 1 })
	require.Less(t, len(drafted), 30)
}

// A server's first requests may be of one token and of two, with drafts that take twice
// as long as they will again. What longer blocks cost is not told by that, and the first
// that can have a whole block has one.
func TestBeginsShort(t *testing.T) {
	for name, cost := range curves {
		for text, most := range map[float64]float64{0: 1.14, 0.97: 1.2} {
			for _, short := range [][]int{{1}, {1, 2}, {1, 2, 2}} {
				t.Run(fmt.Sprintf("%s/%.2f/%v tokens", name, text, short), func(t *testing.T) {
					var got, want float64
					for seed := range uint64(20) {
						ctl := New(Options{Block: 16})
						for _, n := range short {
							run := ctl.Start()
							require.Equal(t, n, run.Next(n))
							steps := 1.0
							if n > 1 {
								steps = 2 * cost(n)
							}
							run.Record(n, n-1, time.Duration(steps*float64(10*time.Millisecond)))
						}
						w := world{cost: cost, text: always(text), n: 200, noise: 0.1, seed: seed}
						run, first := ctl.Start(), 0
						got += w.run(func(limit, _ int) int {
							rows := run.Next(limit)
							if first == 0 {
								first = rows
							}
							return rows
						}, run.Record)
						if len(short) == 1 {
							require.Equal(t, 16, first)
						}
						want += w.bestFixed()
					}
					t.Logf("%.3f", got/want)
					require.Less(t, got/want, most)
				})
			}
		}
	}
}

// The first block of an engine takes several times as long as the next ones: weights
// come from disk, memory from the system. That does not talk it out of drafting.
func TestColdBegin(t *testing.T) {
	for name, cost := range curves {
		t.Run(name, func(t *testing.T) {
			var got, want float64
			for seed := range uint64(20) {
				w := world{cost: cost, text: always(0.97), n: 200, noise: 0.1, seed: seed}
				run, first := New(Options{Block: 16}).Start(), true
				got += w.run(func(limit, _ int) int { return run.Next(limit) }, func(rows, accepted int, took time.Duration) {
					if first {
						took *= 5
					}
					first = false
					run.Record(rows, accepted, took)
				})
				want += w.bestFixed()
			}
			t.Logf("%.3f", got/want)
			require.Less(t, got/want, 1.1)
		})
	}
}

// Durations that say nothing leave it drafting, and are no cost of 0.
func TestNoDurations(t *testing.T) {
	run := New(Options{Block: 16}).Start()
	for range 50 {
		require.Equal(t, 16, run.Next(100))
		run.Record(16, 15, 0)
	}
	run.Record(16, 15, time.Millisecond)
	plain := 0
	for range 50 {
		rows := run.Next(100)
		if rows == 1 {
			plain++
		}
		run.Record(rows, rows-1, 0)
	}
	require.LessOrEqual(t, plain, patience)
}

// What Outlook says are the figures that the choice went by.
func TestOutlook(t *testing.T) {
	w := world{cost: curves["CPU"], text: always(0), n: 500, seed: 1}
	run := New(Options{Block: 16}).Start()
	w.run(func(limit, _ int) int { return run.Next(limit) }, run.Record)
	rows, tokens, steps := run.Outlook()
	require.Equal(t, 2, rows)
	require.InDelta(t, 1, tokens, 0.1)
	require.InEpsilon(t, curves["CPU"](2), steps, 0.05)
}

func TestConcurrent(t *testing.T) {
	c := New(Options{Block: 16})
	var group sync.WaitGroup
	for seed := range uint64(4) {
		group.Go(func() {
			w := world{cost: curves["GPU"], text: always(0.5), n: 300, lag: 1, seed: seed}
			run := c.Start()
			w.run(func(limit, _ int) int { return run.Next(limit) }, run.Record)
			run.Outlook()
		})
	}
	group.Wait()
}
