package mlx_test

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestStreams(t *testing.T) {
	lib := open(t)
	ctx := t.Context()
	st, err := lib.NewStream(ctx, mlx.DeviceCPU, 0)
	require.NoError(t, err)
	device, index := st.Device()
	require.Equal(t, mlx.DeviceCPU, device)
	require.Zero(t, index)
	require.Regexp(t, `^Stream\(cpu:0, \d+\)$`, st.String())
	require.NoError(t, lib.Do(ctx, func(s *mlx.Scope) error {
		a := s.Arange(0, 4, 1, mlx.Float32)
		var b mlx.Array
		s.On(st, func() {
			b = s.Square(a)
			near(t, []float64{0, 1, 4, 9}, values(t, s, b), "on the stream")
			// The guard of integer division is for the CPU, whatever the library's device.
			v, err := mlx.ToSlice[int32](s.FloorDiv(ints(s, 7), ints(s, 0)))
			require.NoError(t, err)
			require.Equal(t, []int32{0}, v)
		})
		near(t, []float64{0, 2, 8, 18}, values(t, s, s.Add(b, b)), "across streams")
		return nil
	}))
	require.NoError(t, st.Synchronize(ctx))
	require.NoError(t, lib.Synchronize(ctx))

	name := st.String()
	require.NoError(t, st.Close())
	require.NoError(t, st.Close())
	require.ErrorIs(t, st.Synchronize(ctx), mlx.ErrClosed)
	err = lib.Do(ctx, func(s *mlx.Scope) error {
		s.On(st, func() { t.Error("called") })
		return nil
	})
	require.ErrorIs(t, err, mlx.ErrClosed)
	again, err := lib.NewStream(ctx, mlx.DeviceCPU, 0)
	require.NoError(t, err)
	require.Equal(t, name, again.String(), "a closed stream serves again: no thread is left over")
	require.NoError(t, again.Close())
}

func TestStreamErrors(t *testing.T) {
	lib := open(t)
	ctx := t.Context()
	for _, c := range []struct {
		device mlx.DeviceType
		index  int
		says   string
	}{
		{mlx.DeviceCPU, 1, "there are 1 devices of type cpu"},
		{mlx.DeviceCPU, -1, "not one with index -1"},
		{mlx.DeviceType(7), 0, "unknown DeviceType(7)"},
	} {
		_, err := lib.NewStream(ctx, c.device, c.index)
		require.ErrorContains(t, err, c.says)
	}
	if lib.Device() == mlx.DeviceCPU {
		_, err := lib.NewStream(ctx, mlx.DeviceGPU, 0)
		require.ErrorIs(t, err, mlx.ErrNoGPU)
	}
	require.ErrorContains(t, lib.Do(ctx, func(s *mlx.Scope) error {
		s.On(nil, func() { t.Error("called") })
		return nil
	}), "the stream is nil")
}

func TestDevices(t *testing.T) {
	lib := open(t)
	list, err := lib.Devices(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, list)
	require.Equal(t, mlx.DeviceCPU, list[0].Type)
	for _, d := range list {
		require.NotEmpty(t, d.Info, "%v", d)
		t.Log(d)
	}
}

func TestLimits(t *testing.T) {
	lib := open(t)
	ctx := t.Context()
	before, err := lib.MemoryLimit(ctx)
	require.NoError(t, err)
	require.Positive(t, before)
	previous, err := lib.SetMemoryLimit(ctx, 1<<33)
	require.NoError(t, err)
	require.Equal(t, before, previous)
	now, err := lib.MemoryLimit(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1<<33, now)
	_, err = lib.SetMemoryLimit(ctx, before)
	require.NoError(t, err)
	_, err = lib.SetWiredLimit(ctx, 0)
	require.NoError(t, err)
	_, err = lib.SetWiredLimit(ctx, -1)
	require.ErrorContains(t, err, "not possible")
}

func TestGroupOfOne(t *testing.T) {
	lib := open(t)
	err := lib.Do(t.Context(), func(s *mlx.Scope) error {
		g := s.Group(mlx.GroupOptions{})
		require.NoError(t, s.Err())
		require.Equal(t, []int{0, 1}, []int{g.Rank(), g.Size()})
		a := f32(s, []int{2}, 1, 2)
		for name, f := range map[string]func(mlx.Array, *mlx.Group) mlx.Array{
			"AllSum": s.AllSum, "AllMax": s.AllMax, "AllMin": s.AllMin, "AllGather": s.AllGather, "SumScatter": s.SumScatter,
		} {
			near(t, []float64{1, 2}, values(t, s, f(a, g)), name)
		}
		return nil
	})
	require.NoError(t, err)
	for says, f := range map[string]func(s *mlx.Scope, g *mlx.Group, a mlx.Array){
		"Send(float32[2]; dst 1): this is process 0 of 1": func(s *mlx.Scope, g *mlx.Group, a mlx.Array) { s.Send(a, 1, g) },
		"Send(float32[2]; dst 0): this is process 0 of 1": func(s *mlx.Scope, g *mlx.Group, a mlx.Array) { s.Send(a, 0, g) },
		"RecvLike(float32[2]; src -1): this is process 0": func(s *mlx.Scope, g *mlx.Group, a mlx.Array) { s.RecvLike(a, -1, g) },
		"Recv(src 3): this is process 0":                  func(s *mlx.Scope, g *mlx.Group, a mlx.Array) { s.Recv(3, g, mlx.Float32, 2) },
		"AllSum(zero Array)":                              func(s *mlx.Scope, g *mlx.Group, a mlx.Array) { s.AllSum(mlx.Array{}, g) },
		"AllSum(): the group is nil":                      func(s *mlx.Scope, g *mlx.Group, a mlx.Array) { s.AllSum(a, nil) },
		"SplitGroup(color 0, key 0): ":                    func(s *mlx.Scope, g *mlx.Group, a mlx.Array) { s.SplitGroup(g, 0, 0) },
		`Group(backend "no such"): `: func(s *mlx.Scope, g *mlx.Group, a mlx.Array) {
			s.Group(mlx.GroupOptions{Backend: "no such", Strict: true})
		},
		`Group(backend "ring"): `: func(s *mlx.Scope, g *mlx.Group, a mlx.Array) {
			s.Group(mlx.GroupOptions{Backend: "ring", Strict: true})
		},
		"AllSum called on scope \"Do\", which was closed by": func(s *mlx.Scope, g *mlx.Group, a mlx.Array) {
			var old *mlx.Group
			_ = lib.Do(context.Background(), func(s *mlx.Scope) error { old = s.Group(mlx.GroupOptions{}); return nil })
			s.AllSum(a, old)
		},
	} {
		err := lib.Do(t.Context(), func(s *mlx.Scope) error {
			f(s, s.Group(mlx.GroupOptions{}), s.Ones(mlx.Float32, 2))
			return nil
		})
		require.ErrorContains(t, err, says)
	}
}

func TestViewSlice(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		a := s.Reshape(s.Arange(0, 6, 1, mlx.Int32), 2, 3)
		v, err := mlx.ViewSlice[int32](a)
		require.NoError(t, err)
		require.Equal(t, []int32{0, 1, 2, 3, 4, 5}, v)
		again, err := mlx.ViewSlice[int32](a)
		require.NoError(t, err)
		require.Same(t, &v[0], &again[0], "no copy")
		_, err = mlx.ViewSlice[float32](a)
		require.ErrorContains(t, err, "ViewSlice(int32[2,3]): the elements are int32, asked for were float32")
		_, err = mlx.ViewSlice[int32](s.Transpose(a))
		require.ErrorContains(t, err, "do not lie row by row")
		v, err = mlx.ViewSlice[int32](s.Contiguous(s.Transpose(a)))
		require.NoError(t, err)
		require.Equal(t, []int32{0, 3, 1, 4, 2, 5}, v)
		v, err = mlx.ViewSlice[int32](s.Zeros(mlx.Int32, 0, 2))
		require.NoError(t, err)
		require.Empty(t, v)
		_, err = mlx.ViewSlice[int32](mlx.Array{})
		require.ErrorIs(t, err, mlx.ErrZeroArray)

		// The memory of an array that lives is not written to, also by an update that could reuse it.
		keep, err := mlx.ViewSlice[int32](a)
		require.NoError(t, err)
		require.NoError(t, s.Eval(s.SliceUpdate(a, s.Full(9, mlx.Int32, 1, 1), []int{0, 0}, []int{1, 1})))
		require.Equal(t, []int32{0, 1, 2, 3, 4, 5}, keep)
	})
}

func TestShareSlice(t *testing.T) {
	lib := open(t)
	released := 0
	release := func() { released++ }
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		data := []float32{1, 2, 3, 4, 5, 6}
		a := mlx.ShareSlice(s, data, release, 2, 3)
		runtime.GC()
		near(t, []float64{1, 2, 3, 4, 5, 6}, values(t, s, a), "values")
		require.Equal(t, []int{2, 3}, a.Shape())
		mlx.ShareSlice(s, []int32{}, release)
		mlx.ShareSlice[int32](s, []int32{1}, nil)
		return nil
	}))
	require.Equal(t, 2, released)
	released = 0
	require.ErrorContains(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		mlx.ShareSlice(s, []int32{1, 2}, release, 3)
		mlx.ShareSlice(s, []int32{1, 2}, release) // the scope has failed
		return nil
	}), "shape and length do not agree")
	require.Equal(t, 2, released)
	var p *mlx.PanicError
	require.ErrorAs(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		mlx.ShareSlice(s, []int32{1, 2}, func() { panic("in release") })
		return nil
	}), &p)
	require.Equal(t, "in release", p.Value)
}

// resident is the process's memory in bytes.
func resident(t testing.TB) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("needs Linux: ", err)
	}
	var n int64
	for _, c := range strings.Fields(string(text))[1] {
		n = n*10 + int64(c-'0')
	}
	return n * int64(os.Getpagesize())
}

// A million operations, evaluated and not, freed one by one and by scope, hold nothing.
func TestMemoryStaysFlat(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	lib := open(t)
	base := lib.LiveArrays()
	step := func() {
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
			x := s.Ones(mlx.Float32, 64)
			y := x
			for range 100 {
				y = s.Add(y, x)
			}
			if err := s.Eval(y); err != nil {
				return err
			}
			for range 900 {
				s.Free(s.Mul(x, x))
			}
			return nil
		}))
	}
	for range rounds / 10 {
		step()
	}
	before := resident(t)
	for range rounds {
		step()
	}
	require.Equal(t, base, lib.LiveArrays())
	require.Less(t, resident(t)-before, int64(16<<20), "bytes of growth in %d operations", rounds*1000)
	m, err := lib.Memory(t.Context())
	require.NoError(t, err)
	require.Less(t, m.Active, int64(1<<20))
}
