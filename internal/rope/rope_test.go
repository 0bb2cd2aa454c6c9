package rope

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Wavelengths and magnitude are those of Hugging Face's own function, which
// computes in float32.
func TestYaRNAgainstTransformers(t *testing.T) {
	data, err := os.ReadFile("testdata/yarn.json")
	require.NoError(t, err)
	var table struct {
		Cases []struct {
			Dims       int
			Theta      float64
			Parameters Parameters
			InvFreq    []float64 `json:"inv_freq"`
			Attention  float64
		}
	}
	require.NoError(t, json.Unmarshal(data, &table))
	require.Len(t, table.Cases, 10)
	for _, c := range table.Cases {
		for _, newer := range []bool{false, true} {
			scaling, parameters := &c.Parameters, (*Parameters)(nil)
			if newer {
				scaling, parameters = nil, scaling
			}
			y, wrong := Scaling(scaling, parameters)
			require.Nil(t, wrong)
			require.InDelta(t, c.Attention, y.Attention, 1e-12)
			got := y.Wavelengths(c.Dims, c.Theta)
			require.Len(t, got, len(c.InvFreq))
			for i, f := range c.InvFreq {
				require.InEpsilon(t, f, 1/float64(got[i]), 1e-6, "%v dimension %d", c.Parameters, i)
			}
		}
	}
}

func TestMagnify(t *testing.T) {
	y := &YaRN{Attention: 1.5}
	require.Equal(t, []float32{1.5, 1.5, 1, 1, 1}, y.Magnify(2, 5))
}

func TestScaling(t *testing.T) {
	read := func(text string) *Parameters {
		if text == "" {
			return nil
		}
		var p Parameters
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		return &p
	}
	const plain = `"factor": 4, "original_max_position_embeddings": 32768`
	for name, c := range map[string]struct {
		scaling, parameters string
		is, says            string // the scaling, or the error
		unsupported         bool
	}{
		"nothing":              {"", "", "", "", false},
		"default":              {`{"type": "default", "factor": 1}`, `{"rope_type": "default"}`, "", "", false},
		"old":                  {`{"type": "yarn", ` + plain + `}`, "", "yarn, factor 4", "", false},
		"new":                  {"", `{"rope_type": "yarn", ` + plain + `}`, "yarn, factor 4", "", false},
		"both names":           {"", `{"rope_type": "yarn", "type": "yarn", ` + plain + `}`, "yarn, factor 4", "", false},
		"twice":                {`{"type": "yarn", ` + plain + `}`, `{"rope_type": "yarn", ` + plain + `}`, "yarn, factor 4", "", false},
		"theta elsewhere":      {`{"type": "yarn", ` + plain + `}`, `{"rope_theta": 1e6}`, "yarn, factor 4", "", false},
		"twice, different":     {`{"type": "yarn", ` + plain + `}`, `{"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 32768}`, "", "different ways", false},
		"contradiction":        {`{"type": "yarn", ` + plain + `}`, `{"rope_type": "default"}`, "", "different ways", false},
		"contradiction, other": {`{"type": "default"}`, `{"rope_type": "yarn", ` + plain + `}`, "", "different ways", false},
		"two names":            {`{"type": "default", "rope_type": "yarn", ` + plain + `}`, "", "", `rope_scaling.type is "default"`, false},
		"no factor":            {`{"type": "yarn", "original_max_position_embeddings": 32768}`, "", "", "without factor", false},
		"no length":            {"", `{"type": "yarn", "factor": 2}`, "", "rope_parameters is \"yarn\" without", false},
		"factor below one":     {`{"type": "yarn", "factor": 0.5, "original_max_position_embeddings": 32768}`, "", "", "factor is 0.5", false},
		"huge factor":          {`{"type": "yarn", "factor": 1e9, "original_max_position_embeddings": 32768}`, "", "", "factor is 1e+09", false},
		"huge length":          {`{"type": "yarn", "factor": 1, "original_max_position_embeddings": 1e300}`, "", "", "1e+300", false},
		"broken length":        {`{"type": "yarn", "factor": 1, "original_max_position_embeddings": 1.5}`, "", "", "is 1.5", false},
		"huge product":         {`{"type": "yarn", "factor": 1000, "original_max_position_embeddings": 1e6}`, "", "", "positions", false},
		"bounds swapped":       {`{"type": "yarn", "beta_fast": 1, "beta_slow": 32, ` + plain + `}`, "", "", "beta_fast is 1 and beta_slow 32", false},
		"negative bound":       {`{"type": "yarn", "beta_slow": -1, ` + plain + `}`, "", "", "beta_slow -1", false},
		"no magnitude":         {`{"type": "yarn", "attention_factor": 0, ` + plain + `}`, "", "", "attention_factor", false},
		"negative magnitude":   {`{"type": "yarn", "mscale": -100, "mscale_all_dim": 1, ` + plain + `}`, "", "", "mscale", false},
		"another kind":         {`{"rope_type": "llama3", ` + plain + `}`, "", "", `rope_scaling.rope_type is "llama3"`, true},
		"dynamic":              {"", `{"type": "dynamic", ` + plain + `}`, "", `rope_parameters.type is "dynamic"`, true},
		"factor alone":         {"", `{"factor": 2}`, "", "rope_parameters.factor is 2", true},
	} {
		t.Run(name, func(t *testing.T) {
			y, wrong := Scaling(read(c.scaling), read(c.parameters))
			if c.says == "" {
				require.Nil(t, wrong)
				require.Equal(t, c.is, y.String())
				if y != nil {
					require.Equal(t, 131072, y.Positions())
					for _, w := range y.Wavelengths(128, 1e6) {
						require.False(t, math.IsNaN(float64(w)) || w <= 0)
					}
				}
				return
			}
			require.NotNil(t, wrong)
			require.ErrorContains(t, wrong, c.says)
			require.Equal(t, c.unsupported, wrong.Unsupported)
		})
	}
}
