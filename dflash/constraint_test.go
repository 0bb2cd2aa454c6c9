package dflash_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
)

// onlyEven allows a token where the sum with the one before it is even, by
// masks, and from the free-th token on anything.
type onlyEven struct {
	vocab, last, free int
	chosen            []int
	cut               int // blocks that were cut
	fail              error
}

func (c *onlyEven) allows(before, id int) bool { return (before+id)%2 == 0 }

func (c *onlyEven) Free(n int) bool { return len(c.chosen) >= c.free }

func (c *onlyEven) Masks(drafts []int) ([]uint32, error) {
	words := (c.vocab + 31) / 32
	var out []uint32
	before := c.last
	for i := range len(drafts) + 1 {
		row := make([]uint32, words)
		for id := range c.vocab {
			if c.allows(before, id) || len(c.chosen)+i >= c.free {
				row[id/32] |= 1 << (id % 32)
			}
		}
		out = append(out, row...)
		if i < len(drafts) {
			if row[drafts[i]/32]>>(drafts[i]%32)&1 == 0 {
				c.cut++
				break
			}
			before = drafts[i]
		}
	}
	return out, c.fail
}

func (c *onlyEven) Advance(tokens []int) error {
	c.chosen = append(c.chosen, tokens...)
	c.last = tokens[len(tokens)-1]
	return nil
}

// Case 92: masks hold for each row, whatever the drafts are: the tokens are
// those of plain decoding under the same masks, and all are allowed. Masks may
// forbid every draft.
func TestConstraint(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 41})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 42})
	odd := 0
	for _, sampling := range []dflash.Sampling{{}, {Temperature: 1, Seed: 7}, {Temperature: 1, Seed: 7, Rejection: true}} {
		for _, free := range []int{15, 1000} {
			generate := func(noDraft, pipelined bool) ([]int, *onlyEven) {
				s := newSession(t, e)
				s.SetPipelined(pipelined)
				c := &onlyEven{vocab: spec.Vocab, last: 72, free: free}
				r := dflash.Request{IDs: []int{71, 72}, MaxTokens: 60, IgnoreEOS: true, Sampling: sampling, NoDraft: noDraft}
				if !noDraft {
					r.BlockSize = 8 // whether it pays or not
				}
				dflash.Constrain(&r, c)
				ids, _ := run(t, s, r)
				require.Equal(t, ids, c.chosen)
				before := 72
				for i, id := range ids {
					if i < free {
						require.True(t, c.allows(before, id))
					}
					before = id
				}
				return ids, c
			}
			plain, _ := generate(true, false)
			drafted, c := generate(false, false)
			require.Positive(t, c.cut)
			inFlight, _ := generate(false, true)
			if !sampling.Rejection {
				require.Equal(t, plain, drafted)
				require.Equal(t, plain, inFlight)
			}
			for i := free; i < len(plain); i++ {
				if !c.allows(plain[i-1], plain[i]) {
					odd++
				}
			}
		}
	}
	require.Positive(t, odd) // it is the mask that keeps them even
}

// A constraint's error, masks of the wrong size and a row that allows nothing
// end the generation with an error.
func TestConstraintErrors(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 41})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 42})
	planted := errors.New("planted")
	for name, c := range map[string]struct {
		constraint dflash.Constraint
		is         error
		text       string
	}{
		"its own": {&onlyEven{vocab: spec.Vocab, free: 1000, fail: planted}, planted, ""},
		"size":    {&onlyEven{vocab: 32, free: 1000}, nil, "masks of"},
		"nothing": {nothing(spec.Vocab), nil, "no token at position 2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, e)
			r := dflash.Request{IDs: []int{71, 72}, MaxTokens: 9, IgnoreEOS: true}
			dflash.Constrain(&r, c.constraint)
			var last error
			for _, err := range s.Generate(t.Context(), r) {
				last = err
			}
			require.Error(t, last)
			if c.is != nil {
				require.ErrorIs(t, last, c.is)
			}
			require.ErrorContains(t, last, c.text)
			require.NotErrorIs(t, last, dflash.ErrRequest) // the caller is not to blame
			if name == "nothing" {                         // with bans he is
				r.BannedIDs = []int{3}
				for _, err := range s.Generate(t.Context(), r) {
					require.ErrorIs(t, err, dflash.ErrRequest)
				}
			}
		})
	}
}

// Two constraints allow what both allow.
func TestConstraints(t *testing.T) {
	spec := fixture.Rand(t, t.TempDir(), fixture.Options{Seed: 41})
	e := fixturePair(t, spec, fixture.DraftOptions{Seed: 42})
	var ids [2][]int
	for i, noDraft := range []bool{true, false} {
		r := dflash.Request{IDs: []int{71, 72}, MaxTokens: 40, IgnoreEOS: true, NoDraft: noDraft, Sampling: dflash.Sampling{Temperature: 2, Seed: 1}}
		even := &onlyEven{vocab: spec.Vocab, last: 72, free: 20}
		dflash.Constrain(&r, even)
		dflash.Constrain(&r, below{spec.Vocab, 90})
		ids[i], _ = run(t, newSession(t, e), r)
		before := 72
		for j, id := range ids[i] {
			require.Less(t, id, 90)
			require.True(t, j >= 20 || even.allows(before, id))
			before = id
		}
		require.Equal(t, ids[i], even.chosen)
	}
	require.Equal(t, ids[0], ids[1])
}

// below allows the ids below a bound.
type below struct{ vocab, bound int }

func (below) Free(int) bool       { return false }
func (below) Advance([]int) error { return nil }

func (b below) Masks(drafts []int) ([]uint32, error) {
	row := make([]uint32, (b.vocab+31)/32)
	for id := range b.bound {
		row[id/32] |= 1 << (id % 32)
	}
	rows := slices.IndexFunc(drafts, func(id int) bool { return id >= b.bound }) + 1
	if rows == 0 {
		rows = len(drafts) + 1
	}
	return slices.Repeat(row, rows), nil
}

type nothing int

func (nothing) Free(int) bool { return false }
func (n nothing) Masks([]int) ([]uint32, error) {
	return slices.Repeat([]uint32{0}, (int(n)+31)/32), nil
}
func (nothing) Advance([]int) error { return nil }

// What comes after the end of a generation in its block is nobody's business: a
// dictation that has no token after a stop id, a stop text or the budget is no
// error, and where it is one, what comes before it is handed out.
func TestConstraintEndsInsideBlock(t *testing.T) {
	spec := fixture.Const(t, t.TempDir(), 'x', fixture.Options{})
	s := newSession(t, openDir(t, spec.Dir, dflash.Options{Draft: spec.Draft}))
	for name, c := range map[string]struct {
		r      dflash.Request
		tokens int
		fails  bool
	}{
		"stop id":   {dflash.Request{StopIDs: []int{'x'}}, 1, false},
		"stop text": {dflash.Request{Stop: []string{"xxxxx"}}, 5, false},
		"budget":    {dflash.Request{MaxTokens: 5}, 5, false},
		"dead end":  {dflash.Request{}, 5, true},
	} {
		for _, noDraft := range []bool{true, false} {
			r := c.r
			r.IDs, r.NoDraft, r.BannedIDs = []int{1}, noDraft, []int{3}
			if !noDraft {
				r.BlockSize = 8
			}
			dflash.Constrain(&r, &shortDictation{dictation{spec.Vocab, []int{'x', 'x', 'x', 'x', 'x'}}})
			n, last := 0, error(nil)
			for _, err := range s.Generate(t.Context(), r) {
				if last = err; err == nil {
					n++
				}
			}
			require.Equal(t, c.tokens, n, "%s, no draft %v", name, noDraft)
			if c.fails {
				require.ErrorContains(t, last, "no token at position 6", name)
			} else {
				require.NoError(t, last, name)
			}
		}
	}
}

// shortDictation has a row without any token after its text.
type shortDictation struct{ dictation }

func (d *shortDictation) Masks(drafts []int) ([]uint32, error) {
	rows, err := d.dictation.Masks(drafts)
	if words := (d.vocab + 31) / 32; len(rows) < words*(len(drafts)+1) && len(rows) == words*len(d.rest) {
		rows = append(rows, make([]uint32, words)...)
	}
	return rows, err
}
