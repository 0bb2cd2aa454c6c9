package mlx

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/godflash/godflash/internal/mlxc"
)

// Stream is a queue of work on a device. Operations on different streams may run
// at the same time; where one needs the result of another MLX makes it wait.
type Stream struct {
	lib    *Library
	h      mlxc.Handle
	device DeviceType
	index  int // of the device
	number int // of the stream
	closed atomic.Bool
}

type idleStream struct {
	h      mlxc.Handle
	device DeviceType
	index  int
	number int
}

// NewStream makes a stream on a device; index counts devices of one type from 0,
// and DeviceDefault is the library's device. MLX ends streams only together, so a
// stream that is closed serves the next NewStream for the device.
// (mlx_stream_new_device)
func (l *Library) NewStream(ctx context.Context, device DeviceType, index int) (*Stream, error) {
	if device == DeviceDefault {
		device = l.device
	}
	st := &Stream{lib: l, device: device, index: index}
	err := l.Do(ctx, func(*Scope) error {
		n, status := mlxc.DeviceCount(device == DeviceGPU)
		switch {
		case status != mlxc.OK:
			return fmt.Errorf("mlx: NewStream: %s", cleanMessage(mlxc.LastError()))
		case device != DeviceCPU && device != DeviceGPU:
			return fmt.Errorf("mlx: NewStream: unknown %v", device)
		case device == DeviceGPU && !mlxc.HasGPU():
			return fmt.Errorf("%w: NewStream", ErrNoGPU)
		case index < 0 || index >= n:
			return fmt.Errorf("mlx: NewStream: there are %d devices of type %v, not one with index %d", n, device, index)
		}
		c := l.core
		for i, idle := range c.idle {
			if idle.device == device && idle.index == index {
				st.h, st.number = idle.h, idle.number
				c.idle = append(c.idle[:i], c.idle[i+1:]...)
				return nil
			}
		}
		h, number := mlxc.StreamOn(device == DeviceGPU, index)
		if h <= mlxc.OffWorker {
			return fmt.Errorf("mlx: NewStream: %s", cleanMessage(mlxc.LastError()))
		}
		st.h, st.number = h, number
		return nil
	})
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Device is DeviceCPU or DeviceGPU, and which one of that type.
func (st *Stream) Device() (DeviceType, int) { return st.device, st.index }

// String looks like Stream(cpu:0, 3).
func (st *Stream) String() string {
	return fmt.Sprintf("Stream(%v:%d, %d)", st.device, st.index, st.number)
}

// Synchronize waits until all work given to the stream is done. (mlx_synchronize)
func (st *Stream) Synchronize(ctx context.Context) error {
	return st.lib.Do(ctx, func(*Scope) error {
		if st.closed.Load() {
			return fmt.Errorf("%w: %v", ErrClosed, st)
		}
		return synchronize(st.h)
	})
}

// Synchronize waits until all work on the library's own stream is done. (mlx_synchronize)
func (l *Library) Synchronize(ctx context.Context) error {
	return l.Do(ctx, func(*Scope) error { return synchronize(l.stream) })
}

func synchronize(h mlxc.Handle) error {
	if mlxc.Synchronize(h) != mlxc.OK {
		return fmt.Errorf("mlx: Synchronize: %s", cleanMessage(mlxc.LastError()))
	}
	return nil
}

// Close gives the stream back. Arrays made on it stay good. Closing twice is no error.
func (st *Stream) Close() error {
	if st.closed.Swap(true) {
		return nil
	}
	c := st.lib.core
	c.onWorker(func() { c.idle = append(c.idle, idleStream{st.h, st.device, st.index, st.number}) })
	return nil
}

// On has the operations of s that f calls run on st instead of the library's own
// stream; only operations of s, not those of other scopes. On calls f at once. A
// stream that is closed, or of another Library, is the scope's error, and f is
// not called.
func (s *Scope) On(st *Stream, f func()) {
	if !s.begin(opOn) {
		return
	}
	switch {
	case !mlxc.OnWorker():
		s.failed(opOn, mlxc.OffWorker, "")
		return
	case st == nil || st.lib.core != s.lib.core:
		s.refuse(opOn, "the stream is nil or of another Library", "")
		return
	case st.closed.Load():
		s.record(&OpError{Op: "On", Args: st.String(), Err: ErrClosed})
		return
	}
	stream, device := s.stream, s.device
	s.stream, s.device = st.h, st.device
	defer func() { s.stream, s.device = stream, device }()
	f()
}

var opOn = newOp("On", "", "")

// Device describes a device that MLX can use.
type Device struct {
	Type  DeviceType
	Index int
	Info  map[string]any // what MLX tells about it, by name: string or int
}

// Devices lists all devices. (mlx_device_count, mlx_device_info_get)
func (l *Library) Devices(ctx context.Context) ([]Device, error) {
	var list []Device
	err := l.Do(ctx, func(*Scope) error {
		for _, t := range []DeviceType{DeviceCPU, DeviceGPU} {
			if t == DeviceGPU && !mlxc.HasGPU() {
				continue
			}
			n, status := mlxc.DeviceCount(t == DeviceGPU)
			for i := 0; status == mlxc.OK && i < n; i++ {
				d := Device{Type: t, Index: i, Info: map[string]any{}}
				status = mlxc.DeviceInfo(t == DeviceGPU, i, func(key, text string, size int, isText bool) {
					d.Info[key] = size
					if isText {
						d.Info[key] = text
					}
				})
				list = append(list, d)
			}
			if status != mlxc.OK {
				return fmt.Errorf("mlx: Devices: %s", cleanMessage(mlxc.LastError()))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
