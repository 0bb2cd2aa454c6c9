package tokenizer_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// Checkpoints that mlx-lm converted have a post-processor that adds nothing, and
// the same tokenizer. One that adds a token is refused.
func TestConvertedTokenizer(t *testing.T) {
	for pair, converted := range map[string]string{"tiny-qwen3": "target-mxfp4", "tiny-qwen3.5": "target-4bit", "tiny-qwen3.5-moe": "target-4bit"} {
		a, err := tokenizer.Load(filepath.Join("../../testdata", pair, "target"))
		require.NoError(t, err)
		b, err := tokenizer.Load(filepath.Join("../../testdata", pair, converted))
		require.NoError(t, err)
		require.Equal(t, a.Fingerprint(), b.Fingerprint())
		require.Equal(t, a.EOS(), b.EOS())

		data, err := os.ReadFile(filepath.Join("../../testdata", pair, converted, "tokenizer.json"))
		require.NoError(t, err)
		var file map[string]any
		require.NoError(t, json.Unmarshal(data, &file))
		post := file["post_processor"].(map[string]any)
		post["single"] = append(post["single"].([]any), map[string]any{"SpecialToken": map[string]any{"id": "<|im_end|>", "type_id": 0}})
		data, err = json.Marshal(file)
		require.NoError(t, err)
		_, err = tokenizer.New(data, nil)
		require.ErrorIs(t, err, tokenizer.ErrUnsupported)
		require.ErrorContains(t, err, "TemplateProcessing")
	}
}
