package kernels

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// A shim is a program made of the texts of kernels, compiled for the CPU, that
// runs them there: one function for each text and set of template arguments.
type shim struct {
	index map[string]int32 // by the function's text
	ways  [2]struct {      // copies in the background happen as late as they may, or at once
		in  io.Writer
		out *bufio.Reader
	}
}

// newShim compiles and starts the program for trials; without g++ the test is skipped.
func newShim(t testing.TB, trials []trial) *shim {
	t.Helper()
	if _, err := exec.LookPath("g++"); err != nil {
		t.Skip("no g++ to compile the kernels' text with")
	}
	sh := &shim{index: map[string]int32{}}
	for _, tr := range trials {
		for _, src := range tr.texts() {
			if text := function(tr.spec, src, tr.call); src.Source != "" {
				if _, ok := sh.index[text]; !ok {
					sh.index[text] = int32(len(sh.index))
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("#include \"shim.h\"\n")
	texts := slices.SortedFunc(maps.Keys(sh.index), func(x, y string) int { return int(sh.index[x] - sh.index[y]) })
	for i, text := range texts {
		fmt.Fprintf(&b, "namespace k%d {\n%s}\n", i, text)
	}
	b.WriteString("static void body(int which, void** args) {\nswitch (which) {\n")
	for i := range texts {
		fmt.Fprintf(&b, "case %d: k%d::call(args); break;\n", i, i)
	}
	b.WriteString("}\n}\n")
	here, err := filepath.Abs("testdata")
	require.NoError(t, err)
	_, err = os.ReadFile(filepath.Join(here, "shim.h")) // so that go test knows that it is read
	require.NoError(t, err)
	exe := filepath.Join(t.TempDir(), "kernels")
	require.NoError(t, os.WriteFile(exe+".cpp", []byte(b.String()), 0o600))
	out, err := exec.Command("g++", "-O1", "-std=c++17", "-fno-strict-aliasing", "-ffp-contract=off", "-w", "-I", here, exe+".cpp", "-o", exe).CombinedOutput()
	require.NoError(t, err, "%s", out)

	for i, args := range [][]string{nil, {"at once"}} {
		cmd := exec.Command(exe, args...)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			in.Close()
			require.NoError(t, cmd.Wait())
		})
		sh.ways[i].in, sh.ways[i].out = in, bufio.NewReader(stdout)
	}
	return sh
}

var cTypes = map[mlx.Dtype]string{
	mlx.Float32: "float", mlx.BFloat16: "__nv_bfloat16", mlx.Int32: "int32_t", mlx.Uint32: "uint32_t",
}

// function writes the head that MLX would write, the kernel's text, and a call.
func function(spec mlx.KernelSpec, src mlx.KernelSource, c call) string {
	var b, args strings.Builder
	// The shim's threadgroup makes a variable static, which a cast cannot be.
	header := strings.ReplaceAll(src.Header, "threadgroup float4", "float4")
	for _, own := range []string{overlapHeader, denseHeader(2, 256, false), denseHeader(3, 128, false), denseHeader(2, 256, true), pairHeader, aloneHeader, mmaHeader, loadHeader, q4Header, q4WideHeader, streamHeader, upHeader, downHeader, groupHeader, copyHeader, onceHeader, chunkHeader} { // the shim has its own
		header = strings.ReplaceAll(header, compact(own), "")
	}
	b.WriteString(header)
	b.WriteString("static void kernel(")
	for i, name := range spec.Inputs {
		ct := cTypes[c.in[i].Dtype()]
		fmt.Fprintf(&b, "const %s* %s, const Shape& %s_shape, ", ct, name, name)
		fmt.Fprintf(&args, "(const %s*)args[%d], *(Shape*)args[%d], ", ct, 2*i, 2*i+1)
	}
	for i, name := range spec.Outputs {
		sep, ct := ", ", cTypes[c.launch.Outputs[i].Dtype]
		if i == len(spec.Outputs)-1 {
			sep = ""
		}
		fmt.Fprintf(&b, "%s* %s%s", ct, name, sep)
		fmt.Fprintf(&args, "(%s*)args[%d]%s", ct, 2*(len(spec.Inputs)+i), sep)
	}
	b.WriteString(") {\n")
	for _, a := range c.launch.Template {
		switch v := a.Value.(type) {
		case mlx.Dtype:
			fmt.Fprintf(&b, "typedef %s %s;\n", cTypes[v], a.Name)
		case bool:
			fmt.Fprintf(&b, "constexpr bool %s = %v;\n", a.Name, v)
		default:
			fmt.Fprintf(&b, "constexpr int %s = %v;\n", a.Name, v)
		}
	}
	fmt.Fprintf(&b, "%s}\nstatic void call(void** args) { kernel(%s); }\n", src.Source, args.String())
	return b.String()
}

// run gives the bytes of the outputs, and after them those of the inputs that the
// kernel writes to.
func (sh *shim) run(t testing.TB, spec mlx.KernelSpec, src mlx.KernelSource, c call) [][]byte {
	t.Helper()
	which, ok := sh.index[function(spec, src, c)]
	require.True(t, ok, "%s is not among the trials that the shim was made for", spec.Name)
	var in bytes.Buffer
	put := func(v ...int) {
		for _, x := range v {
			in.Write(binary.LittleEndian.AppendUint32(nil, uint32(int32(x))))
		}
	}
	put(int(which), truth(src == spec.CUDA), 1+truth(strings.Contains(src.Header, "__cluster_dims__(2,")), spec.SharedMemory)
	put(max(1, c.launch.Grid[0]), max(1, c.launch.Grid[1]), max(1, c.launch.Grid[2]))
	put(max(1, c.launch.Group[0]), max(1, c.launch.Group[1]), max(1, c.launch.Group[2]))
	put(len(c.in) + len(c.launch.Outputs))
	shape := func(dims []int) {
		var all [10]int
		copy(all[:], dims)
		put(all[:]...)
	}
	var written [][]byte
	for i, a := range c.in {
		raw, kind := rawBytes(t, a), 0
		if slices.Contains(c.writes, i) {
			kind = 2
			written = append(written, make([]byte, len(raw)))
		}
		shape(a.Shape())
		put(kind, truth(slices.Contains(readEarly[spec.Name], spec.Inputs[i])), len(raw))
		in.Write(raw)
	}
	res := make([][]byte, len(c.launch.Outputs))
	for i, o := range c.launch.Outputs {
		n := o.Dtype.Size()
		for _, d := range o.Shape {
			n *= d
		}
		shape(o.Shape)
		put(1, 0, n)
		res[i] = make([]byte, n)
	}
	var late []byte
	for i, way := range sh.ways {
		_, err := way.in.Write(in.Bytes())
		require.NoError(t, err)
		for _, to := range slices.Concat(written, res) {
			_, err := io.ReadFull(way.out, to)
			require.NoError(t, err)
		}
		var bad int32
		require.NoError(t, binary.Read(way.out, binary.LittleEndian, &bad))
		require.Equal(t, int32(-1), bad, "%s writes behind the end of that argument", spec.Name)
		if all := slices.Concat(slices.Concat(written...), slices.Concat(res...)); i == 0 {
			late = all
		} else {
			require.True(t, bytes.Equal(late, all), "%s: it matters when copies in the background happen", spec.Name)
		}
	}
	return append(res, written...)
}

// rawBytes are an array's values, row by row.
func rawBytes(t testing.TB, a mlx.Array) []byte {
	t.Helper()
	var b []byte
	var err error
	switch a.Dtype() {
	case mlx.Float32:
		v, e := mlx.ToSlice[float32](a)
		b, err = binary.Append(nil, binary.LittleEndian, v)
		require.NoError(t, e)
	case mlx.BFloat16:
		v, e := mlx.ToSlice[mlx.BF16](a)
		b, err = binary.Append(nil, binary.LittleEndian, v)
		require.NoError(t, e)
	case mlx.Int32:
		v, e := mlx.ToSlice[int32](a)
		b, err = binary.Append(nil, binary.LittleEndian, v)
		require.NoError(t, e)
	case mlx.Uint32:
		v, e := mlx.ToSlice[uint32](a)
		b, err = binary.Append(nil, binary.LittleEndian, v)
		require.NoError(t, e)
	}
	require.NoError(t, err)
	return b
}

// array is the opposite of rawBytes.
func array(t testing.TB, s *mlx.Scope, raw []byte, o mlx.Output) mlx.Array {
	t.Helper()
	switch o.Dtype {
	case mlx.Float32:
		v := make([]float32, len(raw)/4)
		_, err := binary.Decode(raw, binary.LittleEndian, v)
		require.NoError(t, err)
		return mlx.FromSlice(s, v, o.Shape...)
	case mlx.BFloat16:
		v := make([]mlx.BF16, len(raw)/2)
		_, err := binary.Decode(raw, binary.LittleEndian, v)
		require.NoError(t, err)
		return mlx.FromSlice(s, v, o.Shape...)
	case mlx.Int32:
		v := make([]int32, len(raw)/4)
		_, err := binary.Decode(raw, binary.LittleEndian, v)
		require.NoError(t, err)
		return mlx.FromSlice(s, v, o.Shape...)
	}
	t.Fatalf("no arrays of %v", o.Dtype)
	return mlx.Array{}
}
