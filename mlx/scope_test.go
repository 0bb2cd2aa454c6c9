package mlx_test

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestArrayIsASmallComparableValue(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		a := s.Ones(mlx.Float32, 2)
		b := a
		require.True(t, a == b)
		require.True(t, a.Valid())
		require.Equal(t, s, a.Scope())
		require.False(t, mlx.Array{} == a)
		var zero mlx.Array
		require.False(t, zero.Valid())
		require.Nil(t, zero.Scope())
		require.Nil(t, zero.Shape())
		require.Zero(t, zero.Dim(0)+zero.NDim()+zero.Size()+zero.NBytes())
	})
}

func TestQueries(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		a := s.Zeros(mlx.BFloat16, 2, 3, 5)
		require.Equal(t, []int{2, 3, 5}, a.Shape())
		require.Equal(t, []int{3, 3, 30, 60}, []int{a.Dim(1), a.NDim(), a.Size(), a.NBytes()})
		require.Equal(t, []int{5, 2}, []int{a.Dim(-1), a.Dim(-3)})
		require.Equal(t, mlx.BFloat16, a.Dtype())
		require.Panics(t, func() { a.Dim(3) })
		require.Panics(t, func() { a.Dim(-4) })
		require.Equal(t, "array([[1, 2],\n       [3, 4]], shape=[2,2], dtype=int32)", mlx.FromSlice(s, []int32{1, 2, 3, 4}, 2, 2).String())
		require.Equal(t, "array(none)", mlx.Array{}.String())
		s.Free(a)
		require.Equal(t, "array(ended by Scope.Free)", a.String())
	})
}

func TestMoveRefFree(t *testing.T) {
	lib := open(t)
	keep := lib.NewScope("keep")
	var moved mlx.Array
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		base := lib.LiveArrays()
		a := s.Full(7, mlx.Float32, 2)
		require.Equal(t, a, s.Move(a), "into its own scope")
		moved = keep.Move(a)
		require.Equal(t, []int{0, 1}, []int{s.Len(), keep.Len()})
		require.Equal(t, base+1, lib.LiveArrays(), "moving makes no array")
		require.PanicsWithError(t, `mlx: input 1 of Exp, made by Full in scope "Do", was ended by Scope.Move`, func() { s.Exp(a) })

		b := s.Ref(moved)
		require.Equal(t, base+2, lib.LiveArrays())
		s.Free(mlx.Array{}, b, mlx.Array{})
		require.Equal(t, base+1, lib.LiveArrays())
		require.PanicsWithError(t, `mlx: input 2 of Add, made by Full in scope "Do", was ended by Scope.Free`, func() { s.Add(moved, b) })
		require.Panics(t, func() { s.Free(b) }, "freed twice")

		// The slot is in use again: the old reference must still be seen as ended.
		c := s.Ones(mlx.Float32, 3)
		require.Panics(t, func() { s.Exp(b) })
		s.Free(c)
		return nil
	}))
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		v, err := mlx.ToSlice[float32](moved)
		require.Equal(t, []float32{7, 7}, v, "the moved array outlives the Do that made it")
		return err
	}))
	require.NoError(t, keep.Close())
	require.Zero(t, keep.Len())
	require.NoError(t, keep.Close(), "closing twice")
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		s.Exp(moved)
		return nil
	})
	require.ErrorIs(t, err, mlx.ErrClosed)
	require.ErrorContains(t, err, `input 1 of Exp, made by Full in scope "keep", was ended by Scope.Close`)
	err = lib.Do(t.Context(), func(*mlx.Scope) error {
		keep.Zeros(mlx.Float32, 1)
		return nil
	})
	require.ErrorContains(t, err, `Zeros called on scope "keep", which was closed by Scope.Close`)
}

func TestArrayThatEscapesItsDo(t *testing.T) {
	lib := open(t)
	var kept mlx.Array
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		kept = s.Ones(mlx.Float32, 1)
		return nil
	}))
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		_, err := mlx.ToSlice[float32](kept)
		return err
	})
	var use *mlx.UseError
	require.ErrorAs(t, err, &use)
	require.Equal(t, &mlx.UseError{Op: "ToSlice", Input: 1, Made: "Ones", Scope: "Do", Ending: "the end of Library.Do"}, use)
}

func TestStickyErrors(t *testing.T) {
	one := func(s *mlx.Scope) mlx.Array { return s.Ones(mlx.Float32, 2, 3) }
	for name, c := range map[string]struct {
		f    func(s *mlx.Scope) mlx.Array
		says string
	}{
		"shape":             {func(s *mlx.Scope) mlx.Array { return s.MatMul(one(s), one(s)) }, "mlx: MatMul(float32[2,3], float32[2,3]): "},
		"broadcast":         {func(s *mlx.Scope) mlx.Array { return s.Add(one(s), s.Ones(mlx.Int32, 4)) }, "mlx: Add(float32[2,3], int32[4]): "},
		"axis":              {func(s *mlx.Scope) mlx.Array { return s.Sum(one(s), false, 5) }, "mlx: Sum(float32[2,3]; axes [5]): "},
		"axis of argmax":    {func(s *mlx.Scope) mlx.Array { return s.Argmax(one(s), 2, false) }, "mlx: Argmax(float32[2,3]; axis 2): "},
		"axis of slice":     {func(s *mlx.Scope) mlx.Array { return s.SliceAxis(one(s), -3, 0, 1) }, "mlx: SliceAxis(float32[2,3]; axis -3, start 0, stop 1): axis -3 is out of bounds"},
		"axis of take":      {func(s *mlx.Scope) mlx.Array { return s.Take(one(s), ints(s, 0), 7) }, "mlx: Take(float32[2,3], int32[1]; axis 7): "},
		"index type":        {func(s *mlx.Scope) mlx.Array { return s.Take(one(s), one(s), 0) }, "mlx: Take(float32[2,3], float32[2,3]; axis 0): "},
		"reshape":           {func(s *mlx.Scope) mlx.Array { return s.Reshape(one(s), 4, 2) }, "mlx: Reshape(float32[2,3]; shape [4,2]): "},
		"nine dimensions":   {func(s *mlx.Scope) mlx.Array { return s.Reshape(one(s), 1, 1, 1, 1, 1, 1, 1, 2, 3) }, "at most 8 numbers of 32 bits"},
		"beyond 32 bits":    {func(s *mlx.Scope) mlx.Array { return s.Sort(one(s), math.MaxInt32+1) }, "at most 8 numbers of 32 bits"},
		"negative shape":    {func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.Float32, 2, -1) }, "mlx: Zeros(float32[2,-1]): impossible shape"},
		"too large":         {func(s *mlx.Scope) mlx.Array { return s.Zeros(mlx.Float64, math.MaxInt32, math.MaxInt32, 2) }, "impossible shape"},
		"no dtype":          {func(s *mlx.Scope) mlx.Array { return s.AsType(one(s), mlx.Dtype(99)) }, "mlx: AsType(float32[2,3]; Dtype(99)): unknown type"},
		"length":            {func(s *mlx.Scope) mlx.Array { return mlx.FromSlice(s, []int8{1, 2, 3}, 2, 2) }, "mlx: FromSlice(shape [2,2], length 3): shape and length do not agree"},
		"scalar range":      {func(s *mlx.Scope) mlx.Array { return s.Scalar(256, mlx.Uint8) }, "mlx: Scalar(256 uint8): the type cannot hold the number"},
		"scalar nan":        {func(s *mlx.Scope) mlx.Array { return s.Full(nan, mlx.Int32, 2) }, "mlx: Scalar(NaN int32): the type cannot hold the number"},
		"range without end": {func(s *mlx.Scope) mlx.Array { return s.Arange(0, 1, 0, mlx.Int32) }, "mlx: Arange(0, 1, 0, int32): impossible range"},
		"concat of none":    {func(s *mlx.Scope) mlx.Array { return s.Concat(0) }, "mlx: Concat(axis 0): no arrays given"},
		"concat of unlike":  {func(s *mlx.Scope) mlx.Array { return s.Concat(0, one(s), s.Ones(mlx.Float32, 2, 2)) }, "mlx: Concat(float32[2,3], float32[2,2]; axis 0): "},
		"split":             {func(s *mlx.Scope) mlx.Array { return first(s.Split(one(s), 2, 1)) }, "mlx: Split(float32[2,3]; parts 2, axis 1): "},
		"split in none":     {func(s *mlx.Scope) mlx.Array { return first(s.Split(one(s), 0, 1)) }, "impossible number of parts"},
		"split backwards":   {func(s *mlx.Scope) mlx.Array { return first(s.SplitAt(one(s), 1, 2, 1)) }, "mlx: SplitAt(float32[2,3]; indices [2,1], axis 1): indices must be ascending"},
		"slice axes":        {func(s *mlx.Scope) mlx.Array { return s.Slice(one(s), []int{0}, []int{1}) }, "mlx: Slice(float32[2,3]; start [0], stop [1]): "},
		"slice lists":       {func(s *mlx.Scope) mlx.Array { return s.Slice(one(s), []int{0, 0}, []int{1}) }, "start and stop need one number per axis"},
		"update":            {func(s *mlx.Scope) mlx.Array { return s.SliceUpdate(one(s), one(s), []int{0, 0}, []int{1, 1}) }, "mlx: SliceUpdate(float32[2,3], float32[2,3]; start [0,0], stop [1,1]): "},
		"topk":              {func(s *mlx.Scope) mlx.Array { return s.TopK(one(s), 4, 1) }, "mlx: TopK(float32[2,3]; k 4, axis 1): "},
		"sort of nothing":   {func(s *mlx.Scope) mlx.Array { return s.Sort(s.Zeros(mlx.Int32, 0), 0) }, "mlx: Sort(int32[0]; axis 0): the array is empty"},
		"sum of nothing":    {func(s *mlx.Scope) mlx.Array { return s.CumSum(s.Zeros(mlx.Int32, 2, 0), 0) }, "mlx: CumSum(int32[2,0]; axis 0): the array is empty"},
		"no kernel": {func(s *mlx.Scope) mlx.Array {
			return s.Conv1d(s.Ones(mlx.Float32, 1, 4, 1), s.Ones(mlx.Float32, 1, 0, 1), mlx.Conv1dOptions{})
		}, "the array is empty"},
		"negative reshape": {func(s *mlx.Scope) mlx.Array { return s.Reshape(s.Ones(mlx.Int32, 4), -2, -2) }, "mlx: Reshape(int32[4]; shape [-2,-2]): impossible shape"},
		"huge broadcast": {func(s *mlx.Scope) mlx.Array {
			return s.BroadcastTo(one(s), math.MaxInt32, math.MaxInt32, math.MaxInt32, 2, 3)
		}, "impossible shape"},
		"negative size": {func(s *mlx.Scope) mlx.Array {
			return s.SliceDynamic(s.Ones(mlx.Int32, 4), ints(s, 0), []int{0}, []int{-1})
		}, "impossible size or axes"},
		"floor division": {func(s *mlx.Scope) mlx.Array { return s.FloorDiv(ints(s, 1, 2), ints(s, 1, 2, 3)) }, "mlx: FloorDiv(int32[2], int32[3]): "},
		"rope dims":      {func(s *mlx.Scope) mlx.Array { return s.RoPE(one(s), mlx.RoPEOptions{Dims: 3}, 0) }, "Dims must be positive and even"},
		"rope twice": {func(s *mlx.Scope) mlx.Array {
			return s.RoPE(one(s), mlx.RoPEOptions{Dims: 2, Base: 1, Freqs: one(s)}, 0)
		}, "Base and Freqs exclude each other"},
		"attention masks": {func(s *mlx.Scope) mlx.Array {
			return s.Attention(one(s), one(s), one(s), mlx.AttentionOptions{Causal: true, Mask: one(s)})
		}, "Causal and Mask exclude each other"},
		"attention shape":     {func(s *mlx.Scope) mlx.Array { return s.Attention(one(s), one(s), one(s), mlx.AttentionOptions{}) }, "mlx: Attention(float32[2,3], float32[2,3], float32[2,3]; scale 0.57735026): "},
		"norm weight":         {func(s *mlx.Scope) mlx.Array { return s.RMSNorm(one(s), s.Ones(mlx.Float32, 2), 1e-6) }, "mlx: RMSNorm(float32[2,3], float32[2]): "},
		"conv":                {func(s *mlx.Scope) mlx.Array { return s.Conv1d(one(s), one(s), mlx.Conv1dOptions{}) }, "mlx: Conv1d(float32[2,3], float32[2,3]; stride 1, padding 0, dilation 1, groups 1): "},
		"conv stride":         {func(s *mlx.Scope) mlx.Array { return s.Conv1d(one(s), one(s), mlx.Conv1dOptions{Stride: -1}) }, "stride, dilation and groups must be positive"},
		"zero input":          {func(s *mlx.Scope) mlx.Array { return s.Add(one(s), mlx.Array{}) }, "mlx: Add(float32[2,3], zero Array): zero Array"},
		"zero in list":        {func(s *mlx.Scope) mlx.Array { return s.Stack(0, one(s), mlx.Array{}) }, "mlx: Stack(float32[2,3], zero Array; axis 0): zero Array"},
		"zero in composition": {func(s *mlx.Scope) mlx.Array { return s.Softplus(mlx.Array{}) }, "mlx: Softplus(zero Array): zero Array"},
	} {
		t.Run(name, func(t *testing.T) {
			lib := open(t)
			err := lib.Do(t.Context(), func(s *mlx.Scope) error {
				require.Equal(t, mlx.Array{}, c.f(s))
				first := s.Err()
				require.ErrorContains(t, first, c.says)
				var op *mlx.OpError
				require.ErrorAs(t, first, &op)
				require.NotContains(t, first.Error(), ".cpp", "positions in another program's source help nobody")

				// From here on nothing is called, and the first error stays.
				live := s.Len()
				require.Equal(t, mlx.Array{}, s.Exp(s.Ones(mlx.Float32, 2)))
				require.Equal(t, mlx.Array{}, s.Concat(0))
				require.Nil(t, s.Split(mlx.Array{}, 1, 1))
				require.Equal(t, live, s.Len())
				require.Equal(t, first, s.Eval())
				s.Fail(errors.New("later"))
				require.Equal(t, first, s.Err())
				require.Equal(t, first, s.Close())
				return nil
			})
			require.ErrorContains(t, err, c.says)
		})
	}
}

func first(list []mlx.Array) mlx.Array {
	if len(list) == 0 {
		return mlx.Array{}
	}
	return list[0]
}

// An error in one scope shows up as the cause where its zero result is used in another.
func TestZeroArrayNamesTheEarlierFailure(t *testing.T) {
	lib := open(t)
	keep := lib.NewScope("cache")
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		x := s.Exp(s.Reshape(s.Ones(mlx.Float32, 2), 3))
		require.Equal(t, mlx.Array{}, keep.Move(x), "the failure is the other scope's")
		require.NoError(t, keep.Err())
		keep.Exp(x)
		return keep.Err()
	})
	require.ErrorIs(t, err, mlx.ErrZeroArray)
	require.ErrorContains(t, err, "mlx: Exp(zero Array): an earlier operation failed")
	require.ErrorContains(t, err, "mlx: Reshape(float32[2]; shape [3])")
	require.Error(t, keep.Close())
}

func TestFail(t *testing.T) {
	lib := open(t)
	mine := errors.New("mine")
	require.ErrorIs(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		s.Fail(nil)
		require.NoError(t, s.Err())
		s.Fail(mine)
		require.False(t, s.Ones(mlx.Float32, 1).Valid())
		return nil
	}), mine)
}

func TestOutsideDo(t *testing.T) {
	lib := open(t)
	s := lib.NewScope("weights")
	require.Equal(t, mlx.Array{}, s.Ones(mlx.Float32, 2))
	require.ErrorIs(t, s.Err(), mlx.ErrOutsideDo)
	require.ErrorContains(t, s.Err(), "mlx: Ones(float32[2]): called outside Library.Do")
	require.ErrorIs(t, s.Close(), mlx.ErrOutsideDo)

	s = lib.NewScope("weights")
	var a mlx.Array
	require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error {
		a = s.Ones(mlx.Float32, 2)
		return nil
	}))
	require.Equal(t, "array(outside Library.Do)", a.String())
	_, err := mlx.ToSlice[float32](a)
	require.ErrorIs(t, err, mlx.ErrOutsideDo)
	require.Panics(t, func() { a.Shape() })
	for name, f := range map[string]func(s *mlx.Scope){
		"Exp":              func(s *mlx.Scope) { s.Exp(a) },
		"Add":              func(s *mlx.Scope) { s.Add(a, a) },
		"Concat":           func(s *mlx.Scope) { s.Concat(0, a) },
		"Split":            func(s *mlx.Scope) { s.Split(a, 1, 0) },
		"Free":             func(s *mlx.Scope) { s.Free(a) },
		"Move":             func(s *mlx.Scope) { s.Move(a) },
		"Ref":              func(s *mlx.Scope) { s.Ref(a) },
		"Eval":             func(s *mlx.Scope) { _ = s.Eval(a) },
		"Softplus":         func(s *mlx.Scope) { s.Softplus(a) },
		"LoadSafetensors":  func(s *mlx.Scope) { _, _, _ = s.LoadSafetensors("x") },
		"SaveSafetensors":  func(s *mlx.Scope) { _ = s.SaveSafetensors("x", nil, nil) },
		"Sigmoid and more": func(s *mlx.Scope) { s.SiLU(a) },
	} {
		other := lib.NewScope(name)
		f(other)
		require.ErrorIs(t, other.Close(), mlx.ErrOutsideDo, name)
	}
	require.NoError(t, s.Close())
}

// The count of live arrays is flat over a long loop, with the collector off:
// nothing is left to finalizers.
func TestLongLoopHoldsNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	lib := open(t)
	n := 100_000
	if testing.Short() {
		n = 10_000
	}
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		x, one := s.Zeros(mlx.Float32, 4), s.Scalar(1, mlx.Float32)
		base := lib.LiveArrays()
		for i := range n {
			y := s.Add(x, one)
			s.Free(x)
			x = y
			if i%100 == 99 {
				if err := s.Eval(x); err != nil {
					return err
				}
			}
			if lib.LiveArrays() != base {
				t.Fatalf("round %d: %d arrays live, %d at the start", i, lib.LiveArrays(), base)
			}
		}
		v, err := mlx.ToSlice[float32](x)
		require.Equal(t, []float32{float32(n), float32(n), float32(n), float32(n)}, v)
		require.Equal(t, 2, s.Len())
		return err
	}))
}

func TestOperationsDoNotAllocate(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		x, y := s.Zeros(mlx.Float32, 2, 2), s.Ones(mlx.Float32, 2, 2)
		idx := ints(s, 1)
		for name, f := range map[string]func() mlx.Array{
			"Add":         func() mlx.Array { return s.Add(x, y) },
			"Exp":         func() mlx.Array { return s.Exp(x) },
			"Reshape":     func() mlx.Array { return s.Reshape(x, 4, 1) },
			"Sum":         func() mlx.Array { return s.Sum(x, true, -1) },
			"Slice":       func() mlx.Array { return s.Slice(x, []int{0, 0}, []int{1, 1}) },
			"SliceUpdate": func() mlx.Array { return s.SliceUpdate(x, y, []int{0, 0}, []int{2, 2}) },
			"Take":        func() mlx.Array { return s.Take(x, idx, 0) },
			"Concat":      func() mlx.Array { return s.Concat(0, x, y) },
			"MatMul":      func() mlx.Array { return s.MatMul(x, y) },
			"RMSNorm":     func() mlx.Array { return s.RMSNorm(x, mlx.Array{}, 1e-6) },
			"Scalar":      func() mlx.Array { return s.Scalar(1, mlx.BFloat16) },
			"Zeros":       func() mlx.Array { return s.Zeros(mlx.BFloat16, 2, 2) },
			"SiLU":        func() mlx.Array { return s.SiLU(x) },
			"Softplus":    func() mlx.Array { return s.Softplus(x) },
			"FromSlice":   func() mlx.Array { return mlx.FromSlice(s, []int32{1, 2}) },
		} {
			require.Zero(t, testing.AllocsPerRun(100, func() { s.Free(f()) }), name)
		}
		require.Zero(t, testing.AllocsPerRun(1000, func() { s.Add(x, y) }), "without Free")
		require.Zero(t, testing.AllocsPerRun(100, func() { x.Dim(-1) }))
	})
}

// Without another user of its data an update is written in place: the peak shows no second buffer.
func TestSliceUpdateInPlace(t *testing.T) {
	lib := open(t)
	ctx := context.Background()
	const n = 1 << 20
	grow := func(ref bool) int64 {
		require.NoError(t, lib.ResetPeak(ctx))
		before, err := lib.Memory(ctx)
		require.NoError(t, err)
		require.NoError(t, lib.Do(ctx, func(s *mlx.Scope) error {
			x := s.Zeros(mlx.Float32, n)
			if err := s.Eval(x); err != nil {
				return err
			}
			if ref {
				s.Ref(x)
			}
			y := s.SliceUpdate(x, s.Ones(mlx.Float32, 1), []int{5}, []int{6})
			s.Free(x)
			return s.Eval(y)
		}))
		require.NoError(t, lib.Synchronize(ctx)) // a GPU gives memory back when it is done with it
		after, err := lib.Memory(ctx)
		require.NoError(t, err)
		require.Equal(t, before.Active, after.Active)
		return after.Peak - before.Active
	}
	if lib.Device() == mlx.DeviceCPU { // a GPU may not yet have let go of x
		require.Less(t, grow(false), int64(6*n), "one buffer of 4n bytes")
	}
	require.GreaterOrEqual(t, grow(true), int64(8*n), "a second user forces a copy")
}
