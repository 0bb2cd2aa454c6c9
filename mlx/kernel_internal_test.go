package mlx

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutPercent(t *testing.T) {
	for in, want := range map[string]string{
		"a + b":                        "a + b",
		"a % b":                        "a  GF_MOD  b",
		"a %= b":                       "a  GF_MOD_ASSIGN  b",
		`printf("%d\"%s", a % b);`:     `printf("%d\"%s", a  GF_MOD  b);`,
		"'%' % 3":                      "'%'  GF_MOD  3",
		"// don't % s\na % b /* 5% */": "// don't / s\na  GF_MOD  b /* 5/ */",
		"/* %":                         "/* /",
	} {
		require.Equal(t, want, withoutPercent(in))
	}
}

// A backend that fails is given up with one line of log, and the fallback serves.
func TestKernelThatFailsIsGivenUp(t *testing.T) {
	lib, err := Open(&Options{Device: DeviceCPU})
	require.NoError(t, err)
	defer lib.Close()
	for _, backend := range []string{"cuda", "metal"} {
		for _, trace := range []bool{false, true} {
			var log bytes.Buffer
			require.NoError(t, lib.Do(t.Context(), func(s *Scope) error {
				k := s.NewKernel(KernelSpec{
					Name: "twice", Inputs: []string{"x"}, Outputs: []string{"y"},
					Metal: KernelSource{Source: "y[0] = x[0] % 2;"}, CUDA: KernelSource{Source: "y[0] = x[0] % 2;"},
					Fallback: func(s *Scope, in []Array, _ Launch) []Array { return []Array{s.Add(in[0], in[0])} },
				}, slog.New(slog.NewTextHandler(&log, nil)))
				l := Launch{Outputs: []Output{{Float32, []int{2}}}, Template: []TemplateArg{{"T", Float32}, {"N", 3}, {"B", true}}, Init: new(float32)}
				k.backend = backend // as on a machine that has it
				call := func(s *Scope, in []Array) []Array {
					s.device = DeviceGPU
					defer func() { s.device = DeviceCPU }()
					return k.Call(s, in, l)
				}
				for range 2 {
					var out []Array
					if trace {
						out = s.Compile(call, CompileOptions{}).Call(s, s.Ones(Float32, 2))
					} else {
						out = call(s, []Array{s.Ones(Float32, 2)})
					}
					require.NoError(t, s.Err())
					v, err := ToSlice[float32](out[0])
					require.NoError(t, err)
					require.Equal(t, []float32{2, 2}, v)
				}
				require.Equal(t, "fallback", k.Backend())
				return nil
			}))
			require.Equal(t, 1, bytes.Count(log.Bytes(), []byte("\n")), log.String())
			require.Contains(t, log.String(), "kernel=twice backend="+backend)
		}
	}
	require.Zero(t, lib.LiveArrays())
}
