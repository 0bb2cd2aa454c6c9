package main

import (
	"context"
	"time"

	"github.com/godflash/godflash/mlx"
)

// bandwidth is what the device's memory gives, in bytes per second.
type bandwidth struct {
	Sum  float64 `json:"sum"`  // reading a large array
	Copy float64 `json:"copy"` // reading one and writing another
}

// best is what a bound is taken from.
func (b bandwidth) best() float64 { return max(b.Sum, b.Copy) }

// measureBandwidth sums and copies an array of bytes, until several times in a row
// were not faster than before: a device that comes from idling gains speed meanwhile.
func measureBandwidth(ctx context.Context, lib *mlx.Library, bytes int) (bandwidth, error) {
	const at, most, patience = 2, 60, 5 // so many at once, so that waiting for the device counts less
	var b bandwidth
	err := lib.Do(ctx, func(s *mlx.Scope) error {
		x := s.Full(1, mlx.Float32, bytes/4)
		if err := s.Eval(x); err != nil {
			return err
		}
		timed := func(f func() mlx.Array) (float64, error) {
			best, known := 0.0, 0.0 // known was the best when it last grew by enough
			for round, last := 0, 0; round < most && round-last <= patience; round++ {
				work := make([]mlx.Array, at)
				for i := range work {
					work[i] = f()
				}
				began := time.Now()
				if err := s.Eval(work...); err != nil {
					return 0, err
				}
				rate := float64(at*bytes) / time.Since(began).Seconds()
				if rate > 1.01*known {
					last, known = round, rate
				}
				best = max(best, rate)
				s.Free(work...)
			}
			return best, nil
		}
		var err error
		if b.Sum, err = timed(func() mlx.Array { return s.Sum(x, false) }); err != nil {
			return err
		}
		one := s.Scalar(1, mlx.Float32)
		b.Copy, err = timed(func() mlx.Array { return s.Add(x, one) })
		b.Copy *= 2
		return err
	})
	if err != nil {
		return b, err
	}
	return b, lib.ClearCache(ctx)
}
