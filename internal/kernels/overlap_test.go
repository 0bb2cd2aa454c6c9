package kernels

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// readEarly are the inputs that a kernel reads before gf_wait(), see overlapHeader:
// weights of a model, made when it was loaded. The shim keeps all other arrays out of
// reach until then.
var readEarly = map[string][]string{
	"godflash_q4":             {"w", "scales", "biases", "norm"},
	"godflash_q4_wide":        {"w", "scales", "biases", "norm"},
	"godflash_dense":          {"w", "norm"},
	"godflash_dense_wide":     {"w", "norm"},
	"godflash_dense_pair":     {"w", "norm"},
	"godflash_experts_scores": {"w", "scales", "biases", "gate_w", "gate_scales", "gate_biases"},
}

// overlap are the kernels whose launches do.
var overlap = []string{"godflash_q4", "godflash_q4_wide", "godflash_dense_wide", "godflash_dense_pair"}

func truth(v bool) int {
	if v {
		return 1
	}
	return 0
}

// Every kernel's launches could overlap: its text lets the next one begin, and before
// it waits for the ones before names nothing but weights. Those do that gain by it.
func TestOverlaps(t *testing.T) {
	do(t, func(s *mlx.Scope) {
		specs := []mlx.KernelSpec{largestSpec(), acceptSpec(), DeltaShape{}.keepSpec(2), HeadsShape{}.joinSpec(), chainSpec(largeGPU, false), chainSpec(largeGPU, true)}
		for _, x := range samples(s) {
			specs = append(specs, x.spec)
		}
		seen := map[string]bool{}
		for _, spec := range specs {
			seen[spec.Name] = true
			require.Equal(t, slices.Contains(overlap, spec.Name), spec.Overlaps, spec.Name)
			require.True(t, strings.HasPrefix(spec.CUDA.Source, "gf_next();\n"), spec.Name)
			require.Contains(t, spec.CUDA.Header, compact(overlapHeader), spec.Name)
			before, after, _ := strings.Cut(spec.CUDA.Source, "gf_wait();")
			require.NotEmpty(t, after, spec.Name)
			require.NotContains(t, after, "gf_wait();", spec.Name)
			require.NotContains(t, before, "return", spec.Name)
			require.NotContains(t, spec.Metal.Source, "gf_", spec.Name)
			for _, name := range slices.Concat(spec.Inputs, spec.Outputs) {
				used := regexp.MustCompile(`(^|[^.\w])` + name + `\b`).MatchString(before)
				require.Equal(t, slices.Contains(readEarly[spec.Name], name), used, "%s: %s", spec.Name, name)
			}
		}
		for _, name := range slices.AppendSeq(slices.Clone(overlap), maps.Keys(readEarly)) {
			require.True(t, seen[name], name)
		}
	})
}
