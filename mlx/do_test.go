package mlx_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestDoInsideDo(t *testing.T) {
	lib := open(t)
	require.NoError(t, lib.Do(t.Context(), func(outer *mlx.Scope) error {
		a := outer.Ones(mlx.Float32, 2)
		var b mlx.Array
		require.NoError(t, lib.Do(t.Context(), func(inner *mlx.Scope) error {
			require.NotSame(t, outer, inner)
			b = outer.Move(inner.Add(a, a))
			return nil
		}))
		v, err := mlx.ToSlice[float32](b)
		require.Equal(t, []float32{2, 2}, v)
		require.ErrorIs(t, lib.Close(), mlx.ErrInsideDo)
		_, oerr := mlx.Open(nil)
		require.ErrorIs(t, oerr, mlx.ErrInsideDo)
		return err
	}))
}

func TestDoErrors(t *testing.T) {
	lib := open(t)
	mine := errors.New("mine")
	bad := func(s *mlx.Scope) { s.MatMul(s.Ones(mlx.Float32, 2), s.Ones(mlx.Float32, 3)) }

	require.ErrorIs(t, lib.Do(t.Context(), func(*mlx.Scope) error { return mine }), mine)

	var op *mlx.OpError
	err := lib.Do(t.Context(), func(s *mlx.Scope) error { bad(s); return nil })
	require.ErrorAs(t, err, &op)
	require.Equal(t, "MatMul", op.Op)
	require.Equal(t, []mlx.ArrayInfo{{Valid: true, Shape: []int{2}, Dtype: mlx.Float32}, {Valid: true, Shape: []int{3}, Dtype: mlx.Float32}}, op.Inputs)

	err = lib.Do(t.Context(), func(s *mlx.Scope) error { bad(s); return mine })
	require.ErrorIs(t, err, mine)
	require.ErrorAs(t, err, &op)

	// A scope's own error is not told twice.
	err = lib.Do(t.Context(), func(s *mlx.Scope) error { bad(s); return s.Err() })
	require.Equal(t, op.Error(), err.Error())

	err = lib.Do(t.Context(), func(s *mlx.Scope) error { bad(s); panic(mine) })
	var p *mlx.PanicError
	require.ErrorAs(t, err, &p)
	require.Contains(t, string(p.Stack), "TestDoErrors")
	require.ErrorIs(t, err, mine, "a panic with an error wraps it")
	require.ErrorAs(t, err, &op, "the scope's error is told, too")

	var none []int
	err = lib.Do(t.Context(), func(*mlx.Scope) error { none[3] = 1; return nil })
	require.ErrorAs(t, err, &p)
	require.ErrorContains(t, err, "index out of range")
	require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error { return nil }), "the worker lives on")
}

func TestDoCancel(t *testing.T) {
	lib := open(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	never := func(*mlx.Scope) error { t.Error("f ran"); return nil }
	require.ErrorIs(t, lib.Do(ended, never), context.Canceled)

	// While the worker is busy a waiting Do gives up as soon as its context ends.
	busy, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = lib.Do(t.Context(), func(*mlx.Scope) error { close(busy); <-free; return nil })
	})
	<-busy
	waiting, stop := context.WithCancel(t.Context())
	result := make(chan error)
	wg.Go(func() { result <- lib.Do(waiting, never) })
	stop()
	require.ErrorIs(t, <-result, context.Canceled)
	close(free)
	wg.Wait()

	// Once f runs, Do waits for it whatever the context does.
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, lib.Do(ctx, func(*mlx.Scope) error {
		cancel()
		require.ErrorIs(t, lib.Do(ctx, never), context.Canceled, "inside, too")
		return nil
	}))
}

// t.FailNow and others end their goroutine; the worker must outlive that, and
// the caller must end as f wanted.
func TestGoexitInDo(t *testing.T) {
	lib := open(t)
	keep := lib.NewScope("keep")
	var kept mlx.Array
	require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error { kept = keep.Ones(mlx.Float32, 1); return nil }))
	for range 3 {
		returned := false
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = lib.Do(t.Context(), func(s *mlx.Scope) error {
				s.Ones(mlx.Float32, 1)
				runtime.Goexit()
				return nil
			})
			returned = true
		}()
		<-done
		require.False(t, returned, "Do returned")
		require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error { return s.Eval(s.Exp(kept)) }), "same thread, same streams")
		require.EqualValues(t, 1, lib.LiveArrays())
	}
	require.NoError(t, keep.Close())
}

// A naive binding fails here with "There is no Stream(cpu, 0) in current thread".
func TestDoFromManyGoroutines(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	lib := open(t)
	weights := lib.NewScope("weights")
	var w mlx.Array
	var wg sync.WaitGroup
	wg.Go(func() { // loaded on another goroutine than used
		if err := lib.Do(t.Context(), func(*mlx.Scope) error {
			w = weights.Full(0.5, mlx.Float32, 8, 8)
			return weights.Err()
		}); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	stop := make(chan struct{})
	var busy sync.WaitGroup
	for range 4 { // busy neighbours, so that goroutines change threads
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
			}
		})
	}
	var done atomic.Int64
	for g := range 20 {
		wg.Go(func() {
			for i := range 50 {
				err := lib.Do(t.Context(), func(s *mlx.Scope) error {
					x := mlx.FromSlice(s, []float32{float32(g), float32(i), 0, 0, 0, 0, 0, 1}, 1, 8)
					v, err := mlx.Item[float32](s.Sum(s.MatMul(x, w), false))
					if want := 4 * float32(g+i+1); err == nil && v != want {
						t.Errorf("goroutine %d, round %d: %v, want %v", g, i, v, want)
					}
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	close(stop)
	busy.Wait()
	require.EqualValues(t, 1000, done.Load())
	require.NoError(t, weights.Close())
}

func TestOpenAndClose(t *testing.T) {
	a := open(t)
	b, err := mlx.Open(nil)
	require.NoError(t, err)
	require.Equal(t, a.Path(), b.Path())
	require.Regexp(t, `^\d+\.\d+\.\d+`, a.Version())
	require.Contains(t, []mlx.DeviceType{mlx.DeviceCPU, mlx.DeviceGPU}, a.Device())

	sb := b.NewScope("of b")
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "closing twice")
	require.ErrorIs(t, b.Do(t.Context(), func(*mlx.Scope) error { return nil }), mlx.ErrClosed)
	_, err = b.Memory(t.Context())
	require.ErrorIs(t, err, mlx.ErrClosed)
	late := b.NewScope("late")
	require.NoError(t, a.Do(t.Context(), func(s *mlx.Scope) error { return s.Eval(s.Ones(mlx.Float32, 1)) }), "the other reference lives")
	err = a.Do(t.Context(), func(*mlx.Scope) error { late.Ones(mlx.Float32, 1); return nil })
	require.ErrorContains(t, err, "closed by Library.Close")
	require.NoError(t, sb.Close())
	require.NoError(t, late.Close())
}

// Each last Close ends the worker; what Open starts then works like the first.
func TestOpenAgain(t *testing.T) {
	for range 20 {
		lib := open2(t)
		s := lib.NewScope("left open")
		var a mlx.Array
		require.NoError(t, lib.Do(t.Context(), func(*mlx.Scope) error {
			a = s.Exp(s.Zeros(mlx.Float32, 2))
			return s.Eval(a)
		}))
		require.EqualValues(t, 2, lib.LiveArrays())
		require.NoError(t, lib.Close())
		require.Zero(t, lib.LiveArrays(), "the last Close closes scopes")
		require.NoError(t, s.Close())

		lib = open2(t)
		err := lib.Do(t.Context(), func(s *mlx.Scope) error { s.Exp(a); return nil })
		require.Error(t, err, "an array of the library before")
		require.NoError(t, lib.Close())
	}
}

func open2(t *testing.T) *mlx.Library {
	t.Helper()
	lib, err := mlx.Open(nil)
	require.NoError(t, err, "these tests need the MLX library: run make native")
	return lib
}

func TestCloseWhileOthersWork(t *testing.T) {
	for range 20 {
		lib := open2(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					err := lib.Do(context.Background(), func(s *mlx.Scope) error { return s.Eval(s.Ones(mlx.Float32, 4)) })
					if errors.Is(err, mlx.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		time.Sleep(time.Millisecond)
		require.NoError(t, lib.Close())
		wg.Wait()
		require.Zero(t, lib.LiveArrays())
	}
}

// A Do that still waits when its Library is closed must not run with freed streams.
func TestCloseWhileADoWaits(t *testing.T) {
	lib := open2(t)
	busy, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := lib.Do(t.Context(), func(*mlx.Scope) error { close(busy); <-free; return nil }); err != nil {
			t.Error(err)
		}
	})
	<-busy
	wg.Go(func() {
		if err := lib.Do(t.Context(), func(*mlx.Scope) error { t.Error("f ran"); return nil }); !errors.Is(err, mlx.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	})
	time.Sleep(20 * time.Millisecond) // so that the Do waits; it fails the same way when it is late
	wg.Go(func() {
		if err := lib.Close(); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(20 * time.Millisecond)
	close(free)
	wg.Wait()
}

func TestMemory(t *testing.T) {
	lib := open(t)
	ctx := t.Context()
	_, err := lib.SetCacheLimit(ctx, -1)
	require.ErrorContains(t, err, "-1 bytes")
	before, err := lib.SetCacheLimit(ctx, 1<<20)
	require.NoError(t, err)
	set, err := lib.SetCacheLimit(ctx, before)
	require.NoError(t, err)
	require.EqualValues(t, 1<<20, set)
	limit, err := lib.SetMemoryLimit(ctx, 1<<40)
	require.NoError(t, err)
	set, err = lib.SetMemoryLimit(ctx, limit)
	require.NoError(t, err)
	require.EqualValues(t, 1<<40, set)

	require.NoError(t, lib.ClearCache(ctx))
	base, err := lib.Memory(ctx)
	require.NoError(t, err)
	require.Zero(t, base.Cache)
	require.NoError(t, lib.ResetPeak(ctx))
	const n = 1 << 20
	require.NoError(t, lib.Do(ctx, func(s *mlx.Scope) error {
		if err := s.Eval(s.Full(1, mlx.Float32, n/4)); err != nil {
			return err
		}
		m, err := lib.Memory(ctx)
		require.GreaterOrEqual(t, m.Active, base.Active+n)
		return err
	}))
	require.NoError(t, lib.Synchronize(ctx)) // a GPU gives memory back when it is done with it
	m, err := lib.Memory(ctx)
	require.NoError(t, err)
	require.Equal(t, base.Active, m.Active)
	require.GreaterOrEqual(t, m.Peak, base.Active+n)
}

func TestOptionsAreChecked(t *testing.T) {
	_, err := mlx.Open(&mlx.Options{Device: 7})
	require.ErrorContains(t, err, "unknown DeviceType(7)")
	lib := open(t)
	_, err = mlx.Open(&mlx.Options{Path: "/no/such/libmlxc.so"})
	require.ErrorContains(t, err, "/no/such/libmlxc.so")
	require.ErrorContains(t, err, lib.Path())
	same, err := mlx.Open(&mlx.Options{Path: lib.Path()})
	require.NoError(t, err)
	require.NoError(t, same.Close())

	cpu, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	require.Equal(t, mlx.DeviceCPU, cpu.Device())
	require.NoError(t, cpu.Do(t.Context(), func(s *mlx.Scope) error { return s.Eval(s.Exp(s.Ones(mlx.Float64, 2))) }))
	require.NoError(t, cpu.Close())
	if lib.Device() == mlx.DeviceCPU {
		_, err = mlx.Open(&mlx.Options{Device: mlx.DeviceGPU})
		require.ErrorIs(t, err, mlx.ErrNoGPU)
	}
}

// Whoever calls Do first is served first, also when more wait than the queue has
// room for; who gives up is passed over.
func TestDoInOrder(t *testing.T) {
	lib := open(t)
	const callers = 100
	gate, running := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = lib.Do(context.Background(), func(*mlx.Scope) error {
			close(running)
			<-gate
			return nil
		})
	})
	<-running
	require.Zero(t, lib.Waiting())
	var order []int
	ctx, cancel := context.WithCancel(context.Background())
	for i := range callers {
		wg.Go(func() {
			if i%10 == 3 {
				assert.ErrorIs(t, lib.Do(ctx, func(*mlx.Scope) error { panic("given up") }), context.Canceled)
				return
			}
			assert.NoError(t, lib.Do(context.Background(), func(*mlx.Scope) error {
				order = append(order, i)
				return nil
			}))
		})
		for lib.Waiting() <= i {
			runtime.Gosched()
		}
		time.Sleep(time.Millisecond) // a caller is counted a moment before it stands in the queue
	}
	cancel()
	for lib.Waiting() > callers*9/10 {
		runtime.Gosched()
	}
	close(gate)
	wg.Wait()
	require.Zero(t, lib.Waiting())
	require.Len(t, order, callers*9/10)
	// On a busy machine that moment is longer, and neighbours come in another order.
	for i := range order[4:] {
		require.Greater(t, order[i+4], order[i], "%v", order)
	}
}
