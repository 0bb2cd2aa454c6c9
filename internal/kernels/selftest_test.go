package kernels

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

func TestSelfTest(t *testing.T) {
	tested, err := SelfTest(t.Context(), lib)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(tested), 9)
	for _, k := range tested {
		require.NoError(t, k.Err, k.Name)
		require.True(t, strings.HasPrefix(k.Name, "godflash_"))
		require.Equal(t, lib.Device() == mlx.DeviceGPU, k.Backend != "fallback", k.Name)
	}
}

// The samples of the self-test pass under the shim too: a GPU that computes right
// passes its self-test.
func TestSelfTestSamples(t *testing.T) {
	if lib.Device() == mlx.DeviceGPU {
		t.Skip("TestSelfTest runs them")
	}
	checkAll(t, func(s *mlx.Scope) []trial {
		var out []trial
		for _, x := range samples(s) {
			if x.join != nil { // parts of a sum that may be cut in another way: TestAttention
				continue
			}
			out = append(out, trial{x.spec.Name, x.spec, x.call, x.tolerance})
		}
		return out
	})
}
