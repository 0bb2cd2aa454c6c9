package dflash

import (
	"context"
	"slices"

	"github.com/godflash/godflash/mlx"
)

// A cycle is a draft, its verification and the commit, in one hop to the
// library's thread:
//
//	draft     anchor and mask rows through the drafter, greedy ids
//	verify    anchor and drafts through the target, taps recorded
//	accept    on the device: the number of leading drafts that are right
//	read      one small int32 array: the count, the target's choices, the block
//	commit    caches keep n rows, the drafter gets their taps
//
// The state is committed before any token leaves, so that a caller may stop
// after each of them.
type cycle struct {
	tokens   []int // the new tokens
	drafted  int
	accepted int // drafts among tokens
}

// cut says how many of the tokens choices[:accepted+1], all of them the
// target's, are wanted: at least 1.
type cut func(choices []int) int

// runCycle decodes up to rows tokens, rows at least 1, with a draft if the
// sequence is drafting and there is room for one.
func (d *Decoder) runCycle(ctx context.Context, rows int, want cut) (cycle, error) {
	rows = d.room(rows)
	if d.drafting {
		rows = d.draftRoom(rows)
	}
	if !d.drafting || rows < 2 {
		rows = 1
	}
	var c cycle
	err := d.do(ctx, func(s *mlx.Scope) error {
		b := d.build(s, idArray(s, []int{d.anchor}), rows)
		packed, err := readIDs(b.packed)
		if err != nil {
			return err
		}
		if err := s.Err(); err != nil {
			return err
		}
		accepted, tokens, block := unpack(packed)
		if slices.Contains(tokens, nonFinite) {
			return d.findNonFinite(s, block)
		}
		n := want(tokens)
		if err := d.commitRows(s, b.taps, n); err != nil {
			return err
		}
		c = cycle{tokens: tokens[:n], drafted: rows - 1, accepted: min(n, accepted)}
		return s.Eval(d.state()...)
	})
	if err != nil {
		return cycle{}, err
	}
	d.anchor = c.tokens[len(c.tokens)-1]
	return c, nil
}

// verified is a block that was drafted and run through the target, as a graph.
type verified struct {
	choices mlx.Array // int32 [rows]: the target's token after each row
	count   mlx.Array // int32 [1]: leading drafts that are right
	packed  mlx.Array // what the host reads, see unpack
	taps    []mlx.Array
}

// build makes the graph of a draft, its verification and the acceptance after
// anchor int32 [1]. The target's rows are pending.
func (d *Decoder) build(s *mlx.Scope, anchor mlx.Array, rows int) verified {
	ids, noise := anchor, d.noise(s, rows)
	var drafts mlx.Array
	if rows > 1 {
		drafts = d.propose(s, anchor, draftNoise(s, noise), rows)
		ids = s.Concat(0, anchor, drafts)
	}
	hidden, taps := d.target.Forward(s, ids, d.cache, d.taps())
	choices := d.choose(s, d.target.Logits(s, hidden), noise)
	count := accept(s, drafts, choices)
	return verified{choices: choices, count: count, packed: s.Concat(0, count, choices, ids), taps: taps}
}

// draftNoise is the noise of a block's drafts: of all its tokens but the last,
// which only the target chooses.
func draftNoise(s *mlx.Scope, noise mlx.Array) mlx.Array {
	if !noise.Valid() {
		return noise
	}
	return s.SliceAxis(noise, 0, 0, noise.Dim(0)-1)
}

// unpack takes apart what a cycle gives the host in one array: the accepted
// count, the target's choices and the block itself. tokens are the choices up
// to the one after the last accepted draft.
func unpack(packed []int) (accepted int, tokens, block []int) {
	rows := len(packed) / 2
	return packed[0], packed[1 : packed[0]+2], packed[rows+1:]
}

// accept counts, on the device, the leading drafts that equal the target's
// choices: drafts int32 [T-1] (or the zero Array for none), choices int32 [T],
// to int32 [1].
func accept(s *mlx.Scope, drafts, choices mlx.Array) mlx.Array {
	if !drafts.Valid() {
		return s.Zeros(mlx.Int32, 1)
	}
	right := s.AsType(s.Equal(drafts, s.SliceAxis(choices, 0, 0, drafts.Dim(0))), mlx.Int32)
	return s.Sum(s.CumProd(right, 0), true, 0)
}
