package kernels

import (
	"context"
	"fmt"
	"math"

	"github.com/godflash/godflash/mlx"
)

// Tested is what a kernel's self-test found.
type Tested struct {
	Name    string
	Backend string // "cuda", "metal", or "fallback" where there is no kernel for the device
	Err     error  // how its result differs from the operations', or why it does not run
}

// sample is a small call of a kernel.
type sample struct {
	spec      mlx.KernelSpec
	call      call
	tolerance float64
	written   []mlx.Array // what call.writes hold afterwards
	// join is what is compared instead of the outputs, where these may differ: nil
	// for the outputs.
	join func(s *mlx.Scope, out []mlx.Array) mlx.Array
}

// SelfTest runs every kernel on small inputs beside its operations. The error is
// that of the library; what a kernel does wrong is in its own line.
func SelfTest(ctx context.Context, lib *mlx.Library) ([]Tested, error) {
	var names []string
	if err := lib.Do(ctx, func(s *mlx.Scope) error {
		for _, x := range samples(s) {
			names = append(names, x.spec.Name)
		}
		return s.Err()
	}); err != nil {
		return nil, err
	}
	out := make([]Tested, len(names))
	for i, name := range names {
		out[i].Name = name
		// A difference is the scope's error, so each kernel has a scope.
		out[i].Err = lib.Do(ctx, func(s *mlx.Scope) error {
			x := samples(s)[i]
			k := s.NewKernel(x.spec, nil)
			if k == nil {
				return s.Err()
			}
			out[i].Backend = k.Backend()
			if err := s.Eval(append(x.written, x.call.in...)...); err != nil {
				return err
			}
			if x.join != nil {
				return x.checkJoined(s, k)
			}
			if err := k.SelfTest(s, x.call.in, x.call.launch, x.tolerance); err != nil || k.Backend() == "fallback" {
				return err
			}
			return x.checkWritten(s)
		})
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (x *sample) checkJoined(s *mlx.Scope, k *mlx.Kernel) error {
	want := x.join(s, x.spec.Fallback(s, x.call.in, x.call.launch))
	got := x.join(s, x.call.run(s, k))
	return x.near(s, want, got, "the result")
}

// checkWritten compares what the kernel wrote in place.
func (x *sample) checkWritten(s *mlx.Scope) error {
	for i, want := range x.written {
		if err := x.near(s, want, x.call.in[x.call.writes[i]], x.spec.Inputs[x.call.writes[i]]); err != nil {
			return err
		}
	}
	return nil
}

func (x *sample) near(s *mlx.Scope, want, got mlx.Array, what string) error {
	if err := s.Err(); err != nil {
		return err
	}
	off := s.Max(s.Abs(s.Sub(s.AsType(got, mlx.Float32), s.AsType(want, mlx.Float32))), false)
	worst, err := mlx.ToSlice[float32](off)
	if err != nil {
		return err
	}
	if !(float64(worst[0]) <= x.tolerance) {
		return fmt.Errorf("%s: %s differs by %v", x.spec.Name, what, worst[0])
	}
	return nil
}

func samples(s *mlx.Scope) []sample {
	n := 0
	wave := func(dt mlx.Dtype, shape ...int) mlx.Array {
		size := 1
		for _, d := range shape {
			size *= d
		}
		n++
		x := s.Arange(float64(n), float64(n+size), 1, mlx.Float32)
		return s.AsType(s.Reshape(s.Sin(s.Mul(x, s.Scalar(0.7, mlx.Float32))), shape...), dt)
	}
	f32, bf := mlx.Float32, mlx.BFloat16
	const rows = 3

	d := DeltaShape{KeyHeads: 1, ValueHeads: 2, KeyDim: 32, ValueDim: 32, Taps: 4, Eps: 1e-6}
	ch := d.channels()
	source := DeltaSource{
		Tail: wave(f32, 1, 3, ch), QKV: All(wave(f32, 1, rows, ch)), A: All(wave(f32, 1, rows, 2)), B: All(wave(f32, 1, rows, 2)),
		Conv: wave(f32, 4, ch), NegA: s.Neg(s.Ones(f32, 2)), DtBias: wave(f32, 2),
	}
	in := DeltaRows{K: wave(f32, rows, 1, 32), V: wave(f32, rows, 2, 32), G: s.Full(0.9, f32, rows, 2), Beta: s.Full(0.1, f32, rows, 2)}
	state := wave(f32, 1, 2, 32, 32)
	kept := []DeltaBlock{{in, state, wave(f32, 1, 3+rows, ch)}, {in, wave(f32, 1, 2, 32, 32), wave(f32, 1, 3+rows, ch)}}

	long := DeltaShape{KeyHeads: 1, ValueHeads: 2, KeyDim: 128, ValueDim: 32, Taps: 4, Eps: 1e-6}
	unit := func() mlx.Array { return long.unit(s, wave(f32, 40, 1, 128), 1/math.Sqrt(128)) }
	longQ, longIn := unit(), DeltaRows{K: unit(), V: wave(f32, 40, 2, 32), G: s.Full(0.9, f32, 40, 2), Beta: s.Full(0.6, f32, 40, 2)}
	prepare := long.chunkPrepareCall(longQ, &longIn)
	chunkScan := long.chunkScanCall(longQ, &longIn, long.chunkPrepareSpec().Fallback(s, prepare.in, prepare.launch), wave(f32, long.State()...))

	gpu := gpuOf(s.Library())
	h := HeadsShape{Queries: 2, Keys: 1, Dim: 64, Rotated: 64, Gated: true, Eps: 1e-6}
	qkv := wave(bf, 1, rows, 2*2*64+2*64)
	q := Cols{qkv, 0, 256}
	position := mlx.FromSlice(s, []int32{5})
	keys, values := wave(bf, 1, 1, 64, 64), wave(bf, 1, 1, 64, 64)
	attention := h.attentionCall(wave(bf, 1, 2, rows, 64), keys, values, Place{Position: position}, See{Causal: true}, 0.125)
	parts := h.attendParts(s, attention.in, attention.launch)
	into := h.intoCall(q, Cols{qkv, 256, 64}, Cols{qkv, 320, 64}, wave(f32, 64), wave(f32, 64), Place{Position: position}, InvFreq(s, mlx.RoPEOptions{Dims: 64, Base: 1e4}), wave(bf, 1, 1, 64, 64), wave(bf, 1, 1, 64, 64))
	_, newKeys, newValues := h.compose(s, into.in, into.launch)
	written := []mlx.Array{
		s.SliceUpdateDynamic(s.Copy(into.in[7]), newKeys, position, []int{2}),
		s.SliceUpdateDynamic(s.Copy(into.in[8]), newValues, position, []int{2}),
	}
	weights := s.Quantize(wave(bf, 40, 640), q4Options)
	x, y := wave(f32, 1, rows, 96), wave(f32, 1, rows, 96)
	link := Chained{counter: s.Zeros(mlx.Int32, 2), t: tiling{4, 2, 2, 2, 3, true}, in: 1024, out: 128}
	wide := s.Quantize(wave(bf, 128, 1024), q4Options)
	stream := Stream{X: wave(bf, 1, rows, 1024), Sums: s.Full(500, f32, rows, 1)}
	chain := link.call(s.Zeros(f32, 1), stream, wide, Around{Norm: wave(f32, 1024), Eps: 1e-6, Residual: wave(bf, 1, rows, 128), Sums: true})
	gates := link.call(s.Zeros(f32, 1), stream, wide, Around{Norm: wave(f32, 1024), Eps: 1e-6, SwiGLU: true})
	dense := s.AsType(s.Mul(wave(f32, 128, 1024), s.Scalar(0.05, f32)), bf)
	denseProduct := func(t denseTiling, a Around) sample {
		c := Chained{dense: t, in: 1024, out: 128}
		a.Norm, a.Eps = wave(f32, 1024), 1e-6
		return sample{spec: denseSpec(gpu, t.kind), call: c.denseCall(s.Zeros(f32, 1), stream, dense, a), tolerance: 0.1}
	}
	around := Around{Residual: wave(bf, 1, rows, 128), Sums: true}

	mix := MixShape{Experts: 6, TopK: 2, Hidden: 256, Width: 128, Norm: true, Shared: true, Half: 64, Router: 16}
	maps := MixMaps{
		Router: Weight{Dense: wave(bf, 6, 256)}, SharedGate: Weight{Dense: wave(bf, 1, 256)},
		Gate: s.Quantize(wave(bf, 6, 128, 256), q4Options), Up: s.Quantize(wave(bf, 6, 128, 256), q4Options), Down: s.Quantize(wave(bf, 6, 256, 128), q4Options),
		SharedUp: s.Quantize(wave(bf, 256, 256), q4Options), SharedDown: s.Quantize(wave(bf, 256, 128), q4Options),
	}
	row, chosen := wave(bf, 1, rows, 256), mlx.FromSlice(s, []int32{3, 1, 0, 5, 2, 4}, rows, 2)

	group := MixShape{Experts: 6, TopK: 2, Hidden: 256, Width: 128}
	order := group.orderCall(row, chosen)
	ordered := orderSpec().Fallback(s, order.in, order.launch)

	out := []sample{
		{spec: d.inSpec(), call: d.inCall(source), tolerance: 1e-4},
		{spec: d.scanSpec(), call: d.scanCall(wave(f32, rows, 1, 32), &in, state, mlx.FromSlice(s, []int32{2})), tolerance: 1e-4},
		{spec: d.keepSpec(1), call: d.keepCall(kept[:1], mlx.FromSlice(s, []int32{2})), tolerance: 1e-4},
		// Operations on a GPU may multiply these in TF32.
		{spec: long.chunkPrepareSpec(), call: prepare, tolerance: 0.01},
		{spec: long.chunkScanSpec(), call: chunkScan, tolerance: 0.01},
		{spec: d.outSpec(), call: d.outCall(wave(f32, rows, 2, 32), All(wave(f32, 1, rows, 64)), wave(f32, 32)), tolerance: 1e-4},
		{spec: addNormSpec(), call: addNormCall(x, y, wave(f32, 96), 1e-6), tolerance: 1e-4},
		{spec: swigluSpec(), call: swigluCall(x, 24), tolerance: 1e-4},
		{spec: h.splitSpec(), call: h.splitCall(q, Cols{qkv, 256, 64}, Cols{qkv, 320, 64}, wave(f32, 64), wave(f32, 64), position, InvFreq(s, mlx.RoPEOptions{Dims: 64, Base: 1e4})), tolerance: 0.03},
		{spec: h.gateSpec(), call: h.gateCall(wave(bf, 1, 2, rows, 64), q), tolerance: 0.03},
		{spec: h.attentionSpec(), call: attention, tolerance: 0.03, join: func(s *mlx.Scope, out []mlx.Array) mlx.Array {
			if len(out) != 2 {
				return mlx.Array{}
			}
			join := h.joinCall(out[0], out[1], q)
			return h.joinSpec().Fallback(s, join.in, join.launch)[0]
		}},
		{spec: squaresSpec(), call: squaresCall(stream.X), tolerance: 1e-2},
		denseProduct(denseTiling{4, 7, denseAlone}, around),
		denseProduct(wideTiling, Around{SwiGLU: true}),
		{spec: h.intoSpec(), call: into, tolerance: 0.03, written: written},
		{spec: scoresSpec(), call: mix.scoresCall(s.Zeros(f32, 1), Stream{X: row, Sums: s.Full(120, f32, rows, 1)}, maps, Around{Norm: wave(f32, 256), Eps: 1e-6}), tolerance: 0.03},
		{spec: chooseSpec(), call: mix.chooseCall(wave(f32, rows, 7)), tolerance: 1e-4},
		{spec: upSpec(), call: mix.upCall(row, chosen, maps), tolerance: 0.03},
		{spec: downSpec(), call: mix.downCall(wave(bf, rows, 3, 128), chosen, s.Abs(wave(f32, rows, 3)), maps, Around{Residual: row, Sums: true}), tolerance: 0.03},
		{spec: orderSpec(), call: order, tolerance: 0},
		{spec: groupedSpec(gpu), call: group.groupUpCall(gpu, ordered, maps), tolerance: 0.03},
		{spec: groupedSpec(gpu), call: group.groupDownCall(gpu, wave(bf, 2*rows, 128), ordered, maps), tolerance: 0.03},
		{spec: groupSumSpec(), call: group.groupSumCall(wave(bf, 2*rows, 256), s.Abs(wave(f32, rows, 2))), tolerance: 0.03},
	}
	if gpu.Clusters {
		out = append(out, denseProduct(denseTiling{8, 6, densePair}, around), denseProduct(denseTiling{8, 6, densePair}, Around{SwiGLU: true}))
	}
	if len(parts) == 2 {
		out = append(out, sample{spec: h.joinSpec(), call: h.joinCall(parts[0], parts[1], q), tolerance: 0.03})
	}
	if several := d.keepSpec(2); s.NewKernel(several, nil).Backend() == "cuda" {
		out = append(out, sample{spec: several, call: d.keepCall(kept, mlx.FromSlice(s, []int32{2})), tolerance: 1e-4})
	}
	if s.Library().Device() == mlx.DeviceGPU { // on CPUs the operation adds in bfloat16
		out = append(out, sample{spec: chainSpec(gpu, false), call: chain, tolerance: 0.1}, sample{spec: chainSpec(gpu, false), call: gates, tolerance: 0.1})
		plain := Chained{counter: s.Zeros(f32, 1), t: tiling{10, 1, 1, 1, 4, true}, in: 640, out: 40}
		out = append(out, sample{spec: chainSpec(gpu, true), call: plain.call(s.Zeros(f32, 1), Stream{X: wave(bf, 1, rows, 640)}, weights, Around{}), tolerance: 0.1})
	}
	return out
}
