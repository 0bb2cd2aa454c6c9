package dflash_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
)

// naive is the drafter's forward pass from its definition, in float64 and one
// number at a time, with whole contexts and a mask that is a condition.
type naive struct {
	cfg *dflash.DraftConfig
	w   map[string][]float64
	// keys and values of the context, per layer and position.
	keys, values [][][]float64
	// Of scaled positions; nil for cfg.RopeTheta's.
	frequencies []float64
	magnitude   float64
}

func newNaive(t testing.TB, dir string) *naive {
	t.Helper()
	cfg, err := dflash.ReadDraftConfig(dir)
	require.NoError(t, err)
	ck, err := safetensors.Open(dir)
	require.NoError(t, err)
	n := &naive{
		cfg: cfg, w: map[string][]float64{},
		keys: make([][][]float64, cfg.NumHiddenLayers), values: make([][][]float64, cfg.NumHiddenLayers),
	}
	for name, tensor := range ck.Tensors {
		require.Equal(t, "F32", tensor.Dtype)
		data, err := tensor.Read()
		require.NoError(t, err)
		for i := 0; i < len(data); i += 4 {
			n.w[name] = append(n.w[name], float64(math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))))
		}
	}
	return n
}

// linear is W·x for the weight [out, in] of that name.
func (n *naive) linear(name string, x []float64) []float64 {
	w := n.w[name+".weight"]
	y := make([]float64, len(w)/len(x))
	for o := range y {
		for i, v := range x {
			y[o] += w[o*len(x)+i] * v
		}
	}
	return y
}

// norm divides each run of len(weight) values by its root mean square.
func (n *naive) norm(name string, x []float64) []float64 {
	w := n.w[name+".weight"]
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += len(w) {
		var sum float64
		for i := range w {
			sum += x[at+i] * x[at+i]
		}
		r := 1 / math.Sqrt(sum/float64(len(w))+float64(n.cfg.RMSNormEps))
		for i := range w {
			y[at+i] = x[at+i] * r * w[i]
		}
	}
	return y
}

// rotate turns each head by position p, first half against second half.
func (n *naive) rotate(x []float64, p int) []float64 {
	d := n.cfg.HeadDim
	y := make([]float64, len(x))
	for at := 0; at < len(x); at += d {
		for i := range d / 2 {
			frequency, magnitude := math.Pow(float64(n.cfg.RopeTheta), -2*float64(i)/float64(d)), 1.0
			if n.frequencies != nil {
				frequency, magnitude = n.frequencies[i], n.magnitude
			}
			sin, cos := math.Sincos(float64(p) * frequency)
			sin, cos = magnitude*sin, magnitude*cos
			a, b := x[at+i], x[at+d/2+i]
			y[at+i], y[at+d/2+i] = a*cos-b*sin, b*cos+a*sin
		}
	}
	return y
}

func (n *naive) keyValue(layer string, x []float64, p int) (k, v []float64) {
	k = n.norm(layer+"self_attn.k_norm", n.linear(layer+"self_attn.k_proj", x))
	return n.rotate(k, p), n.linear(layer+"self_attn.v_proj", x)
}

// add appends one token, given by its taps side by side.
func (n *naive) add(taps []float64) {
	c := n.norm("hidden_norm", n.linear("fc", taps))
	for i := range n.keys {
		k, v := n.keyValue(fmt.Sprintf("layers.%d.", i), c, len(n.keys[i]))
		n.keys[i], n.values[i] = append(n.keys[i], k), append(n.values[i], v)
	}
}

// sees is the mask: a query at q, a key at k.
func (n *naive) sees(layer, q, k int) bool {
	slides := n.cfg.LayerTypes[layer] == sliding
	causal := slides
	if n.cfg.Causal != nil {
		causal = *n.cfg.Causal
	}
	return !(causal && k > q) && !(slides && q-k >= n.cfg.SlidingWindow)
}

// propose runs a block of embedded rows and gives all rows but the first.
func (n *naive) propose(block [][]float64) []float64 {
	c := n.cfg
	start := len(n.keys[0])
	x := slices.Clone(block)
	for l := range c.NumHiddenLayers {
		p := fmt.Sprintf("layers.%d.", l)
		keys, values := slices.Clone(n.keys[l]), slices.Clone(n.values[l])
		queries := make([][]float64, len(x))
		for i, row := range x {
			h := n.norm(p+"input_layernorm", row)
			queries[i] = n.rotate(n.norm(p+"self_attn.q_norm", n.linear(p+"self_attn.q_proj", h)), start+i)
			k, v := n.keyValue(p, h, start+i)
			keys, values = append(keys, k), append(values, v)
		}
		for i := range x {
			y := n.attend(l, start+i, queries[i], keys, values)
			row := slices.Clone(x[i])
			for j, v := range n.linear(p+"self_attn.o_proj", y) {
				row[j] += v
			}
			h := n.norm(p+"post_attention_layernorm", row)
			gate, up := n.linear(p+"mlp.gate_proj", h), n.linear(p+"mlp.up_proj", h)
			for j := range gate {
				up[j] *= gate[j] / (1 + math.Exp(-gate[j]))
			}
			for j, v := range n.linear(p+"mlp.down_proj", up) {
				row[j] += v
			}
			x[i] = row
		}
	}
	var out []float64
	for _, row := range x[1:] {
		out = append(out, n.norm("norm", row)...)
	}
	return out
}

func (n *naive) attend(layer, at int, q []float64, keys, values [][]float64) []float64 {
	c := n.cfg
	d, group := c.HeadDim, c.NumAttentionHeads/c.NumKeyValueHeads
	y := make([]float64, len(q))
	for h := range c.NumAttentionHeads {
		kv := h / group * d
		var sum float64
		for j := range keys {
			if !n.sees(layer, at, j) {
				continue
			}
			var dot float64
			for i := range d {
				dot += q[h*d+i] * keys[j][kv+i]
			}
			e := math.Exp(dot / math.Sqrt(float64(d)))
			sum += e
			for i := range d {
				y[h*d+i] += e * values[j][kv+i]
			}
		}
		for i := range d {
			y[h*d+i] /= sum
		}
	}
	return y
}

// noise makes rows of n normal values that float32 holds exactly.
func noise(r *rand.Rand, rows, n int) [][]float64 {
	out := make([][]float64, rows)
	for i := range out {
		for range n {
			out[i] = append(out[i], float64(float32(r.NormFloat64())))
		}
	}
	return out
}

// array is the columns from..to of rows as [1, rows, to-from].
func array(s *mlx.Scope, rows [][]float64, from, to int) mlx.Array {
	var data []float32
	for _, row := range rows {
		for _, v := range row[from:to] {
			data = append(data, float32(v))
		}
	}
	return mlx.FromSlice(s, data, 1, len(rows), to-from)
}

// duo is a drafter beside its reference.
type duo struct {
	d *dflash.Drafter
	c *dflash.DraftContext
	n *naive
	r *rand.Rand
}

func newDuo(t testing.TB, dir string) *duo {
	t.Helper()
	d, err := dflash.LoadDrafter(t.Context(), lib, dir, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	c := d.NewContext()
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return &duo{d, c, newNaive(t, dir), rand.New(rand.NewPCG(1, 1))}
}

// add appends size tokens to both, of size+extra tapped rows.
func (u *duo) add(t testing.TB, size, extra int) {
	t.Helper()
	h, k := u.d.Config().HiddenSize, len(u.d.Config().TargetLayerIDs)
	rows := noise(u.r, size+extra, h*k)
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		var taps []mlx.Array
		for i := range k {
			taps = append(taps, array(s, rows, i*h, (i+1)*h))
		}
		if err := u.d.Append(s, u.c, taps, size); err != nil {
			return err
		}
		return s.Eval(u.c.Arrays()...)
	}))
	for _, row := range rows[:size] {
		u.n.add(row)
	}
}

// compare proposes a block with both.
func (u *duo) compare(t testing.TB, block int) {
	t.Helper()
	rows := noise(u.r, block, u.d.Config().HiddenSize)
	var got []float32
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		out := u.d.Propose(s, u.c, array(s, rows, 0, len(rows[0])))
		if err := s.Eval(append(u.c.Arrays(), out)...); err != nil {
			return err
		}
		var err error
		got, err = mlx.ToSlice[float32](s.Contiguous(out))
		return err
	}))
	want := u.n.propose(rows)
	require.Len(t, got, len(want))
	var diff, top float64
	for i := range want {
		diff, top = max(diff, math.Abs(want[i]-float64(got[i]))), max(top, math.Abs(want[i]))
	}
	require.LessOrEqual(t, diff, 1e-4*top, "context %d, block %d", u.c.Len(), block)
}

// masks are the kinds of section 2.4 of the drafter's description, alone and
// mixed, with windows wider and narrower than the block.
var masks = []struct {
	name   string
	types  []string
	window int
	causal any
}{
	{"full", []string{full, full}, 0, nil},
	{"full, is_causal false", []string{full, full}, 0, false},
	{"full, is_causal true", []string{full, full}, 0, true},
	{"sliding", []string{sliding, sliding}, 8, nil},
	{"sliding, is_causal true", []string{sliding, sliding}, 8, true},
	{"sliding, is_causal false", []string{sliding, sliding}, 8, false},
	{"sliding, then full", []string{sliding, full}, 8, nil},
	{"full, then sliding", []string{full, sliding}, 12, nil},
	{"narrow", []string{sliding, sliding}, 3, nil},
	{"narrow, is_causal false", []string{sliding, sliding}, 3, false},
	{"a window of one", []string{sliding, full}, 1, nil},
}

func maskedDraft(t testing.TB, types []string, window int, causal any) string {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 1})
	return editDraft(t, spec, fixture.DraftOptions{Seed: 2, Taps: []int{0, 1, 3}}, func(_ tensorMap, config object) {
		config["layer_types"] = types
		if window > 0 {
			config["sliding_window"] = window
		}
		if causal != nil {
			config["is_causal"] = causal
		}
	})
}

// Case 77: at every context length up to 50, appended in pieces of all sizes
// and with rows that were not kept.
func TestDraftReference(t *testing.T) {
	for _, m := range masks {
		t.Run(m.name, func(t *testing.T) {
			dir := maskedDraft(t, m.types, m.window, m.causal)
			ones := newDuo(t, dir)
			for range 51 {
				ones.compare(t, 8)
				if ones.c.Len()%5 == 0 {
					ones.compare(t, 2)
				}
				ones.add(t, 1, 0)
			}
			pieces := newDuo(t, dir)
			for _, size := range []int{16, 1, 2, 5, 1, 1, 16, 3, 5} {
				pieces.add(t, size, size%3)
				pieces.compare(t, 8)
				pieces.compare(t, 2)
			}
			require.Equal(t, 50, pieces.c.Len())
			require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error { pieces.c.Reset(); return nil }))
			pieces.n = newNaive(t, dir)
			pieces.add(t, 5, 0)
			pieces.compare(t, 8)
		})
	}
}

// The same past the sizes at which the buffers grow or drop rows.
func TestDraftReferenceLong(t *testing.T) {
	for _, m := range []int{0, 3, 6} {
		t.Run(masks[m].name, func(t *testing.T) {
			u := newDuo(t, maskedDraft(t, masks[m].types, masks[m].window, masks[m].causal))
			for _, size := range []int{200, 50, 4, 1, 1, 7, 240, 16, 1, 300, 1} {
				u.add(t, size, 0)
				u.compare(t, 8)
			}
		})
	}
}

// Append and Propose say what does not fit, and change nothing.
func TestDraftMistakes(t *testing.T) {
	u := newDuo(t, maskedDraft(t, masks[6].types, masks[6].window, nil))
	u.add(t, 7, 0)
	h := u.d.Config().HiddenSize
	for name, f := range map[string]func(s *mlx.Scope, taps []mlx.Array) error{
		"two taps of three": func(s *mlx.Scope, taps []mlx.Array) error { return u.d.Append(s, u.c, taps[:2], 4) },
		"more than tapped":  func(s *mlx.Scope, taps []mlx.Array) error { return u.d.Append(s, u.c, taps, 5) },
		"fewer than none":   func(s *mlx.Scope, taps []mlx.Array) error { return u.d.Append(s, u.c, taps, -1) },
		"another width": func(s *mlx.Scope, taps []mlx.Array) error {
			taps[1] = s.Zeros(mlx.Float32, 1, 4, h+1)
			return u.d.Append(s, u.c, taps, 4)
		},
		"block of one": func(s *mlx.Scope, _ []mlx.Array) error {
			u.d.Propose(s, u.c, s.Zeros(mlx.Float32, 1, 1, h))
			return nil
		},
		"block of another width": func(s *mlx.Scope, _ []mlx.Array) error {
			u.d.Propose(s, u.c, s.Zeros(mlx.Float32, 1, 4, h+1))
			return nil
		},
	} {
		base := lib.LiveArrays()
		require.Error(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			return f(s, slices.Repeat([]mlx.Array{s.Ones(mlx.Float32, 1, 4, h)}, 3))
		}), name)
		require.Equal(t, 7, u.c.Len(), name)
		require.Equal(t, base, lib.LiveArrays(), name)
		u.compare(t, 8)
	}
}

// Case 150: the context of a drafter whose layers all slide stays as it is at
// any length; that of full attention grows.
func TestDraftContextMemory(t *testing.T) {
	grown := func(types []string, window int) (early, late int64) {
		u := newDuo(t, maskedDraft(t, types, window, nil))
		h := u.d.Config().HiddenSize
		active := func() int64 {
			require.NoError(t, lib.ClearCache(t.Context()))
			m, err := lib.Memory(t.Context())
			require.NoError(t, err)
			return m.Active
		}
		before := active()
		for at := 0; at < 4000; at += 100 {
			require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
				taps := slices.Repeat([]mlx.Array{s.Ones(mlx.Float32, 1, 100, h)}, 3)
				if err := u.d.Append(s, u.c, taps, 100); err != nil {
					return err
				}
				out := u.d.Propose(s, u.c, s.Ones(mlx.Float32, 1, 8, h))
				return s.Eval(append(u.c.Arrays(), out)...)
			}))
			if at == 500 {
				early = active() - before
			}
		}
		return early, active() - before
	}
	early, late := grown([]string{sliding, sliding}, 64)
	// Two layers of keys and values, 2 heads of 16 in float32, 256 rows.
	require.EqualValues(t, 2*2*2*16*4*256, late)
	require.Equal(t, early, late)
	early, late = grown([]string{full, full}, 0)
	require.Greater(t, late, 4*early)
}

// What an append wrote in place is on its way before the next begins, of the same
// context or of a fork: no data need lead from one to the other.
func TestLastAppendFirst(t *testing.T) {
	const size = 32 << 20
	dir := maskedDraft(t, []string{full, sliding}, 12, nil)
	for _, forked := range []bool{false, true} {
		u := newDuo(t, dir)
		u.add(t, 3, 0)
		require.NoError(t, lib.ResetPeak(t.Context()))
		before, err := lib.Memory(t.Context())
		require.NoError(t, err)
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			u.c.SetEnd(s.Add(s.Zeros(mlx.Float32, size/4), s.Scalar(1, mlx.Float32)))
			if forked {
				f, err := u.c.Fork()
				if err != nil {
					return err
				}
				t.Cleanup(func() { require.NoError(t, f.Close()) })
				u.c = f
			}
			return nil
		}))
		u.add(t, 2, 1)
		after, err := lib.Memory(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, after.Peak-before.Active, int64(size), "forked %v", forked)
		u.compare(t, 4)
	}
}

// Rows that waited are on their way before others are appended.
func TestFlushFirst(t *testing.T) {
	const size = 32 << 20
	e := open(t, "tiny-qwen3", dflash.Options{})
	d, err := e.NewDecoder()
	require.NoError(t, err)
	defer d.Close()
	_, err = d.Prefill(t.Context(), []int{1, 2, 3})
	require.NoError(t, err)
	require.NoError(t, lib.ResetPeak(t.Context()))
	before, err := lib.Memory(t.Context())
	require.NoError(t, err)
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		c := e.Drafter().Config()
		late := s.Sum(s.Add(s.Zeros(mlx.Float32, size/4), s.Scalar(1, mlx.Float32)), false)
		var taps []mlx.Array
		for range c.TargetLayerIDs {
			taps = append(taps, s.Add(s.Zeros(mlx.Float32, 1, 1, c.HiddenSize), late))
		}
		if err := d.Flush(s, taps); err != nil {
			return err
		}
		return s.Eval(s.Ones(mlx.Float32, 1)) // waits for what is on its way
	}))
	after, err := lib.Memory(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, after.Peak-before.Active, int64(size))
}
