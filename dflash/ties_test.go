package dflash_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
)

// rewrite replaces a fixture's weights by edited copies.
func rewrite(t testing.TB, dir string, edit func(name string, data []byte) []byte) {
	t.Helper()
	ck, err := safetensors.Open(dir)
	require.NoError(t, err)
	var tensors []safetensors.WriteTensor
	for name, tensor := range ck.Tensors {
		data, err := tensor.Read()
		require.NoError(t, err)
		tensors = append(tensors, safetensors.WriteTensor{Name: name, Dtype: tensor.Dtype, Shape: tensor.Shape, Data: edit(name, data)})
	}
	require.NoError(t, safetensors.Write(filepath.Join(dir, "model.safetensors"), tensors, nil))
}

// Case 2: where two tokens have exactly the same score the lower id wins, with
// a draft and without, also when the drafts name the higher one.
func TestExactTies(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 21, Dtype: "BF16"})
	prompt := []int{72, 101, 108}
	e := openDir(t, spec.Dir, dflash.Options{})
	truth := plainIDs(t, newSession(t, e), prompt, 64)
	require.NoError(t, e.Close())
	// The token that comes most often gets a twin with a higher id and another
	// with a lower one.
	count := map[int]int{}
	best := truth[0]
	for _, id := range truth {
		if count[id]++; count[id] > count[best] {
			best = id
		}
	}
	low, high := (best+spec.Vocab-7)%spec.Vocab, (best+7)%spec.Vocab
	row := spec.Hidden * 2
	rewrite(t, spec.Dir, func(name string, data []byte) []byte {
		if name == "lm_head.weight" {
			for _, twin := range []int{low, high} {
				copy(data[twin*row:(twin+1)*row], data[best*row:(best+1)*row])
			}
		}
		return data
	})
	winner, losers := min(low, best, high), []int{low, best, high}
	losers = slices.DeleteFunc(losers, func(id int) bool { return id == winner })

	e = fixturePair(t, spec, fixture.DraftOptions{Seed: 1, BlockSize: 16})
	s := newSession(t, e)
	plain := plainIDs(t, s, prompt, 64)
	require.Contains(t, plain, winner)
	for _, loser := range losers {
		require.NotContains(t, plain, loser)
	}
	for _, block := range []int{2, 5, 16} {
		ids, _ := run(t, s, dflash.Request{IDs: prompt, MaxTokens: 64, IgnoreEOS: true, BlockSize: block})
		require.Equal(t, plain, ids)
	}
	d, err := e.NewDecoder()
	require.NoError(t, err)
	defer d.Close()
	first, err := d.Prefill(t.Context(), prompt)
	require.NoError(t, err)
	got := []int{first}
	for len(got) < 48 {
		drafts := slices.Clone(plain[len(got) : len(got)+9])
		at := slices.Index(drafts, winner)
		if at >= 0 {
			drafts[at] = losers[len(got)%2]
		}
		v, err := d.Verify(t.Context(), drafts)
		require.NoError(t, err)
		if at >= 0 {
			require.Equal(t, at, v.Accepted)
		}
		require.NoError(t, d.Commit(t.Context(), v.Accepted+1))
		got = append(got, v.Choices[:v.Accepted+1]...)
	}
	require.Equal(t, plain[:48], got[:48])
}

// Case 9: the same request gives the same ids every time, plain and drafted.
func TestRunToRun(t *testing.T) {
	spec := fixture.GDN(t, t.TempDir(), fixture.Options{Seed: 22})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 23})
	var want []int
	for i := range 20 {
		s, err := e.NewSession()
		require.NoError(t, err)
		ids, _ := run(t, s, dflash.Request{IDs: []int{72, 105}, MaxTokens: 20, IgnoreEOS: true, NoDraft: i%2 == 0})
		require.NoError(t, s.Close())
		if want == nil {
			want = ids
		}
		require.Equal(t, want, ids)
	}
}
