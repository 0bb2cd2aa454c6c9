package qwen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/qwen"
)

func TestGeneration(t *testing.T) {
	for name, c := range map[string]struct {
		file any
		want qwen.Generation
		says string
	}{
		"no file":          {},
		"greedy":           {file: object{"temperature": 0.6, "top_k": 20}},
		"sampled":          {file: object{"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1}, want: qwen.Generation{Temperature: 0.6, TopK: 20, TopP: 0.95, MinP: 0.1}},
		"temperature left": {file: object{"do_sample": true}, want: qwen.Generation{Temperature: 1}},
		"negative":         {file: object{"do_sample": true, "temperature": -1}, says: "temperature is -1"},
		"top_p over 1":     {file: object{"do_sample": true, "top_p": 1.5}, says: "top_p is 1.5"},
		"top_k negative":   {file: object{"do_sample": true, "top_k": -3}, says: "top_k is -3"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readConfig(t, denseConfig(), c.file)
			if c.says != "" {
				require.ErrorIs(t, err, qwen.ErrConfig)
				require.ErrorContains(t, err, c.says)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got.Generation)
		})
	}
}
