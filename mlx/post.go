package mlx

import (
	"errors"

	"github.com/godflash/godflash/internal/mlxc"
)

// Posted is an int32 array that the host will read while the device goes on.
//
// On CUDA [ToSlice] waits for all that was handed over before it is called, also
// for what has nothing to do with the array: MLX moves the array to memory that
// the host can read, and that takes its turn. A posted array is written into the
// host's memory by a kernel behind the one that makes it, and Read waits for that
// alone. Elsewhere memory is shared, and Read is ToSlice.
type Posted struct {
	// Array has the values that were posted. Evaluating it, as with AsyncEval, sends
	// them off. It may be moved to another scope, and Read needs it.
	Array  Array
	box    *letterbox
	letter uint64
}

var opPost = newOp("Post", "", "")

// Post prepares a, int32 and of one dimension, for [Posted.Read]. The result
// belongs to s. More than 1,024 numbers are read as by ToSlice on CUDA, too.
func (s *Scope) Post(a Array) Posted {
	if !s.begin(opPost) {
		return Posted{}
	}
	if a.use(s, opPost, 1) == 0 {
		return Posted{Array: s.zeroInput(opPost, "", a)}
	}
	if a.Dtype() != Int32 || a.NDim() != 1 {
		return Posted{Array: s.refuse(opPost, "an int32 array of one dimension is needed", "", a)}
	}
	if !mlxc.OnWorker() {
		return Posted{Array: s.failed(opPost, mlxc.OffWorker, "")}
	}
	if s.device == DeviceGPU && s.lib.cuda && s.lib.core.tracing == 0 && a.Size() > 0 && a.Size() <= letterInts {
		if box := s.lib.letterbox(); box != nil {
			return box.post(s, a)
		}
	}
	return Posted{Array: a}
}

// Read waits for the values and gives them.
func (p Posted) Read() ([]int32, error) {
	if p.box == nil || p.Array.s == nil || p.letter != p.box.letters[p.letter%letterboxSize].number {
		return ToSlice[int32](p.Array)
	}
	if err := p.Array.s.Eval(p.Array); err != nil {
		return nil, err
	}
	return p.box.open(p.letter, p.Array.Size()), nil
}

const (
	letterInts    = 1024 // the longest letter
	letterboxSize = 64   // letters that can be on their way
)

// letterbox is memory of the host that the device writes into. Only the worker
// touches it. A place is given to a new letter when the old one has arrived, read
// or not, so no kernel writes over a letter.
type letterbox struct {
	host, device uintptr
	kernel       *Kernel
	next         uint64
	letters      [letterboxSize]letter
}

type letter struct {
	number uint64      // of the letter that has the place
	to     mlxc.Handle // int32 [1, 4]: the place's address in the first two, in the device's memory
	sent   mlxc.Handle // the posted array, 0 when the letter is known to have arrived
	lost   bool        // nobody knows whether a kernel is about to write
}

// letterbox makes it at the first call; nil where the device cannot write into
// the host's memory.
func (l *Library) letterbox() *letterbox {
	if !l.boxTried {
		l.boxTried = true
		box, err := l.newLetterbox()
		if err != nil {
			l.log.Warn("mlx: results are read by way of MLX, which waits for all work handed over", "error", err)
		}
		l.box = box
	}
	return l.box
}

func (l *Library) newLetterbox() (*letterbox, error) {
	b := &letterbox{next: 1}
	b.host, b.device = mlxc.Pinned(letterboxSize * letterInts * 4)
	if b.host == 0 {
		return nil, errors.New("the CUDA driver gives no host memory for the device to write into")
	}
	s := l.NewScope("letterbox")
	s.atEnd(b.close)
	b.kernel = s.NewKernel(postSpec(), l.log)
	words := make([]int32, 0, letterboxSize*4)
	for i := range uintptr(letterboxSize) {
		at := uint64(b.device + i*letterInts*4)
		words = append(words, int32(uint32(at)), int32(uint32(at>>32)), 0, 0)
	}
	t := s.steps()
	defer t.close(closedByClose)
	// What the host wrote would move between host and device at each use; a result
	// stays on the device.
	all := t.Add(FromSlice(t, words, letterboxSize, 4), t.Scalar(0, Int32))
	places := t.Split(all, letterboxSize, 0)
	if err := t.Eval(places...); err != nil {
		return nil, err
	}
	for i, a := range places {
		h := mlxc.Ref(a.handle(opPost, 1))
		if h <= mlxc.OffWorker {
			return nil, errors.New(cleanMessage(mlxc.LastError()))
		}
		b.letters[i].to = h
	}
	return b, nil
}

// close runs before the kernel ends.
func (b *letterbox) close() {
	lost := false
	for i := range b.letters {
		lost = !b.arrived(&b.letters[i]) || lost
		if b.letters[i].to != 0 {
			mlxc.Free([]mlxc.Handle{b.letters[i].to})
		}
	}
	if !lost { // else it stays until the process ends
		mlxc.FreePinned(b.host)
	}
}

// arrived waits for the letter of a place; false when that cannot be known.
func (b *letterbox) arrived(p *letter) bool {
	if p.sent != 0 {
		one := []mlxc.Handle{p.sent}
		p.lost = p.lost || mlxc.Eval(one, false) != mlxc.OK
		mlxc.Free(one)
		p.sent = 0
	}
	return !p.lost
}

func (b *letterbox) post(s *Scope, a Array) Posted {
	for range letterboxSize {
		number := b.next
		b.next++
		p := &b.letters[number%letterboxSize]
		if !b.arrived(p) {
			continue
		}
		p.number = 0 // whoever has the old letter reads its Array from here on
		h := mlxc.Ref(p.to)
		if h <= mlxc.OffWorker {
			break
		}
		out := b.kernel.Call(s, []Array{a, s.put(opPost, h)}, Launch{
			Outputs: []Output{{Dtype: Int32, Shape: []int{a.Size()}}},
			Grid:    [3]int{64}, Group: [3]int{64},
		})
		if len(out) != 1 || b.kernel.Backend() == "fallback" {
			break
		}
		sent := mlxc.Ref(out[0].handle(opPost, 1))
		if sent <= mlxc.OffWorker {
			p.lost = true
			break
		}
		p.number, p.sent = number, sent
		return Posted{Array: out[0], box: b, letter: number}
	}
	return Posted{Array: a}
}

// open reads a letter that has arrived and gives its place free.
func (b *letterbox) open(number uint64, n int) []int32 {
	i := number % letterboxSize
	out := make([]int32, n)
	mlxc.ReadPinned(b.host+uintptr(i)*letterInts*4, out)
	p := &b.letters[i]
	p.number = 0
	if p.sent != 0 {
		mlxc.Free([]mlxc.Handle{p.sent})
		p.sent = 0
	}
	return out
}

// postSpec copies x into y and to the address in to.
func postSpec() KernelSpec {
	return KernelSpec{
		Name:    "godflash_post",
		Inputs:  []string{"x", "to"},
		Outputs: []string{"y"},
		CUDA: KernelSource{Source: `
int* host = (int*)(((unsigned long long)(unsigned)to[1] << 32) | (unsigned)to[0]);
for (int i = threadIdx.x; i < x_shape[0]; i += 64) { const int v = x[i]; y[i] = v; host[i] = v; }
__threadfence_system();
`},
		Fallback: func(s *Scope, in []Array, _ Launch) []Array { return []Array{in[0]} },
	}
}
