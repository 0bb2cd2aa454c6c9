package registry

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFind(t *testing.T) {
	for _, test := range []struct{ model, base, drafter string }{
		{"Qwen/Qwen3-4B", "Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16"},
		{"Qwen3-4B", "Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16"},
		{"qwen/qwen3-4b", "Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16"},
		{"Qwen/Qwen3-4B@main", "Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16"},
		{"Qwen/Qwen3-4B@refs/pr/7", "Qwen3-4B", "z-lab/Qwen3-4B-DFlash-b16"},
		{"mlx-community/Qwen3.5-27B-4bit", "Qwen3.5-27B", "z-lab/Qwen3.5-27B-DFlash"},
		{"mlx-community/Qwen3.5-27B-MLX-bf16", "Qwen3.5-27B", "z-lab/Qwen3.5-27B-DFlash"},
		{"mlx-community/Qwen3.6-27B_mxfp4", "Qwen3.6-27B", "z-lab/Qwen3.6-27B-DFlash"},
		{"lmstudio-community/Qwen3-8B-MLX-8bit", "Qwen3-8B", "z-lab/Qwen3-8B-DFlash-b16"},
		{"Qwen/Qwen3.5-35B-A3B", "Qwen3.5-35B-A3B", "z-lab/Qwen3.5-35B-A3B-DFlash"},
		{"Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3-Coder-30B-A3B", "z-lab/Qwen3-Coder-30B-A3B-DFlash"},
		{"/models/Qwen3.5-9B-4bit/", "Qwen3.5-9B", "z-lab/Qwen3.5-9B-DFlash"},
		{"./Qwen3.5-4B", "Qwen3.5-4B", "z-lab/Qwen3.5-4B-DFlash"},
		{"/pairs/Qwen3.5-4B/target", "Qwen3.5-4B", "z-lab/Qwen3.5-4B-DFlash"},
		{"/c/hub/models--Qwen--Qwen3.5-9B/snapshots/1111111111111111111111111111111111111111", "Qwen3.5-9B", "z-lab/Qwen3.5-9B-DFlash"},
		{"/home/user@host/Qwen3.5-9B", "Qwen3.5-9B", "z-lab/Qwen3.5-9B-DFlash"},
	} {
		m, ok := Find(test.model)
		require.True(t, ok, test.model)
		require.Equal(t, test.base, m.Base, test.model)
		require.Equal(t, test.drafter, m.Drafter, test.model)
		require.Equal(t, "DFlash", m.Kind)
		require.Empty(t, m.Unsupported, test.model)
		require.Contains(t, m.Why, test.drafter+" was trained for "+test.base)
	}
	m, _ := Find("Qwen/Qwen3-4B")
	require.Contains(t, m.Why, "reasoning")
}

func TestNoMatch(t *testing.T) {
	for _, model := range []string{
		"", "/", "Qwen/Qwen3-40B", "Qwen/Qwen3-4", "Qwen/Qwen3-4.5B", "Qwen/Qwen3-4Bx", "Qwen/Qwen3-0.6B", "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B",
		"Qwen/Qwen3.5-35B", "Qwen/Qwen3.5-2B", "Qwen/Qwen3.5-397B-A17B", "Qwen/Qwen2.5-7B-Instruct", "my-Qwen3-4B", "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
		"Qwen3-4B/other", "Qwen/Qwen3-Embedding-4B", "Qwen/Qwen3-VL-4B-Instruct",
	} {
		m, ok := Find(model)
		require.False(t, ok, "%q found %+v", model, m)
	}
}

// TestUnsupported: the name is known, and the match says why its drafter is
// not taken.
func TestUnsupported(t *testing.T) {
	for _, test := range []struct{ model, drafter, says string }{
		{"mlx-community/Qwen3.8-27B-4bit", "z-lab/Qwen3.8-27B-DFlash2", "DFlash 2"},
		{"Qwen/Qwen3-14B", "deepseek-ai/dflash_qwen3_14b_block7", "DeepSpec"},
		{"google/gemma-4-31B-it", "z-lab/gemma-4-31B-it-DFlash", "family"},
		{"openai/gpt-oss-20b", "z-lab/gpt-oss-20b-DFlash", "family"},
		{"Qwen/Qwen3-Coder-Next", "z-lab/Qwen3-Coder-Next-DFlash", "family"},
		{"Qwen/Qwen3-4B-Instruct-2507", "z-lab/Qwen3-4B-DFlash-b16", "trained further than Qwen3-4B"},
		{"mlx-community/Qwen3-4B-Thinking-2507-4bit", "z-lab/Qwen3-4B-DFlash-b16", "trained further"},
		{"Qwen/Qwen3-8B-Base", "z-lab/Qwen3-8B-DFlash-b16", "trained further"},
		{"mlx-community/Qwen3.5-4B-base_8bit", "z-lab/Qwen3.5-4B-DFlash", "trained further"},
	} {
		m, ok := Find(test.model)
		require.True(t, ok, test.model)
		require.Equal(t, test.drafter, m.Drafter)
		require.Contains(t, m.Unsupported, test.says, test.model)
		require.Contains(t, m.Why, test.says)
		require.Contains(t, m.Why, test.drafter)
	}
	// A word that only begins like one that tells of further training.
	m, ok := Find("someone/Qwen3-8B-Baseline")
	require.True(t, ok)
	require.Empty(t, m.Unsupported)
}

// TestLongest: of two bases that fit, the longer counts, in any order.
func TestLongest(t *testing.T) {
	short := `{"base":"M-1","drafter":"a/short","kind":"DFlash"}`
	long := `{"base":"M-1-Coder","drafter":"a/long","kind":"DFlash"}`
	for _, entries := range []string{short + "," + long, long + "," + short} {
		tab, err := parse([]byte(`{"entries":[` + entries + `]}`))
		require.NoError(t, err)
		for model, want := range map[string]string{"M-1": "a/short", "M-1-4bit": "a/short", "M-1-Coder": "a/long", "m-1-coder_4bit": "a/long", "M-1-Coders": "a/short"} {
			m, ok := tab.find(model)
			require.True(t, ok)
			require.Equal(t, want, m.Drafter, model)
		}
	}
}

func TestParse(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":              `{`,
		"no entries":           `{"entries":[]}`,
		"a field unknown":      `{"entries":[{"base":"a","drafter":"x/y","kind":"DFlash","colour":"red"}]}`,
		"no kind":              `{"entries":[{"base":"a","drafter":"x/y"}]}`,
		"an organisation":      `{"entries":[{"base":"o/a","drafter":"x/y","kind":"DFlash"}]}`,
		"no drafter":           `{"entries":[{"base":"a","kind":"DFlash"}]}`,
		"a drafter's path":     `{"entries":[{"base":"a","drafter":"x/y/z","kind":"DFlash"}]}`,
		"the same in capitals": `{"entries":[{"base":"a","drafter":"x/y","kind":"DFlash"},{"base":"A","drafter":"x/z","kind":"DFlash"}]}`,
	} {
		_, err := parse([]byte(text))
		require.Error(t, err, name)
	}
	_, err := parse(data)
	require.NoError(t, err)
}

func FuzzFind(f *testing.F) {
	for _, s := range []string{"Qwen/Qwen3-4B", "Qwen3-40B", "a/b@c", "\xff/", "/models--a--b/snapshots/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, model string) {
		require.NotContains(t, NameOf(model), "/")
		if m, ok := Find(model); ok {
			require.True(t, strings.HasPrefix(strings.ToLower(NameOf(model)), strings.ToLower(m.Base)))
			require.NotEmpty(t, m.Why)
		}
	})
}
