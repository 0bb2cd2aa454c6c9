package qwen_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/internal/safetensors"
	"github.com/godflash/godflash/mlx"
	"github.com/godflash/godflash/qwen"
)

// largeChild names the folder to a process that loads it and does nothing else.
const largeChild = "GODFLASH_LARGE_CHILD"

// TestLargeLoad measures time and memory of loading checkpoints of a gigabyte,
// which it makes up: GODFLASH_LARGE=1 go test -run TestLargeLoad -v ./qwen. What
// it printed is in docs/loading.md.
func TestLargeLoad(t *testing.T) {
	if dir := os.Getenv(largeChild); dir != "" {
		measureLoad(t, dir)
		return
	}
	if os.Getenv("GODFLASH_LARGE") == "" {
		t.Skip("GODFLASH_LARGE is not set")
	}
	if runtime.GOOS != "linux" {
		t.Skip("the process's memory is read from /proc")
	}
	qwen3 := fixture.Published{Type: "qwen3", Vocab: 151936, MaxPositions: 40960, Theta: 1e6, HeadDim: 128, Heads: 16, KVHeads: 8, Tied: true}
	dense, packed := qwen3, qwen3
	dense.Hidden, dense.FFN, dense.Layers = 1024, 3072, 22
	packed.Hidden, packed.FFN, packed.Layers = 2048, 6144, 29
	for _, c := range []struct {
		name      string
		model     fixture.Published
		quantised bool
		most      float64 // resident, in sizes of the files
	}{{"bf16", dense, false, 2.1}, {"4-bit, groups of 64", packed, true, 1.01}} {
		t.Run(c.name, func(t *testing.T) {
			dir := published(t, c.model, c.quantised, nil)
			size := fill(t, dir)
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLargeLoad$", "-test.v")
			child.Env = append(os.Environ(), largeChild+"="+dir)
			out, err := child.CombinedOutput()
			require.NoError(t, err, "%s", out)
			_, text, ok := strings.Cut(string(out), "measured ")
			require.True(t, ok, "%s", out)
			var before, resident, peak, active int64
			var seconds float64
			_, err = fmt.Sscanf(text, "%d %d %d %d %f", &before, &resident, &peak, &active, &seconds)
			require.NoError(t, err)
			times := func(n int64) string { return fmt.Sprintf("%.3f GB (%.2f)", float64(n)/1e9, float64(n)/float64(size)) }
			t.Logf("files %.3f GB; weights %s; process before %.3f GB, after %s, peak %s; %.1f s",
				float64(size)/1e9, times(active), float64(before)/1e9, times(resident), times(peak), seconds)
			require.Less(t, float64(active), c.most*float64(size))
			require.Less(t, float64(peak-before), (c.most+0.09)*float64(size))
		})
	}
}

// measureLoad prints what loading dir costs this process.
func measureLoad(t *testing.T, dir string) {
	runtime.GC()
	before := status(t, "VmRSS")
	start := time.Now()
	m, err := qwen.Load(t.Context(), lib, dir, nil)
	require.NoError(t, err)
	seconds := time.Since(start).Seconds()
	resident, peak := status(t, "VmRSS"), status(t, "VmHWM")
	memory, err := lib.Memory(t.Context())
	require.NoError(t, err)
	c := m.NewCache()
	do(t, func(s *mlx.Scope) error {
		h := m.Forward(s, mlx.FromSlice(s, []int32{1, 2, 3, 4}), c, nil)
		for _, x := range must(mlx.ToSlice[float32](m.Logits(s, h.Hidden))) {
			require.False(t, math.IsNaN(float64(x)))
		}
		return nil
	})
	require.NoError(t, c.Close())
	require.NoError(t, m.Close())
	fmt.Printf("measured %d %d %d %d %f\n", before, resident, peak, memory.Active, seconds)
}

// status reads a size from what Linux tells about this process, in bytes.
func status(t *testing.T, field string) int64 {
	data, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == field+":" {
			kb, err := strconv.ParseInt(f[1], 10, 64)
			require.NoError(t, err)
			return kb << 10
		}
	}
	t.Fatalf("no %s", field)
	return 0
}

// fill writes small random values into the holes of a folder's files and
// returns the files' size.
func fill(t *testing.T, dir string) int64 {
	files, err := safetensors.Open(dir)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	total := int64(0)
	for _, path := range files.Files {
		info, err := os.Stat(path)
		require.NoError(t, err)
		total += info.Size()
	}
	chunk := make([]byte, 8<<20)
	for _, tensor := range files.Tensors {
		f, err := os.OpenFile(tensor.File, os.O_WRONLY, 0)
		require.NoError(t, err)
		for at := int64(0); at < tensor.Bytes; at += int64(len(chunk)) {
			part := chunk[:min(int64(len(chunk)), tensor.Bytes-at)]
			for i := 0; i+8 <= len(part); i += 8 {
				bits := r.Uint64()
				if tensor.Dtype == "BF16" {
					bits = bits&0x80ff80ff80ff80ff | 0x3c003c003c003c00 // about ±0.01
				}
				binary.LittleEndian.PutUint64(part[i:], bits)
			}
			_, err := f.WriteAt(part, tensor.Offset+at)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	return total
}
