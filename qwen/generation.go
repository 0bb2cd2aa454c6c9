package qwen

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Generation is how a checkpoint's authors recommend to draw tokens. The zero
// value is greedy. Names are Hugging Face's.
type Generation struct {
	Temperature float64
	TopK        int     // 0 keeps all
	TopP        float64 // 0 keeps all
	MinP        float64 // 0 keeps all
}

// rawGeneration mirrors generation_config.json.
type rawGeneration struct {
	EOSTokenID  tokenIDs `json:"eos_token_id"`
	DoSample    bool     `json:"do_sample"`
	Temperature *float64 `json:"temperature"`
	TopK        *int     `json:"top_k"`
	TopP        *float64 `json:"top_p"`
	MinP        *float64 `json:"min_p"`
}

// readGeneration reads generation_config.json, which a folder need not have.
func readGeneration(path string) (eos []int, g Generation, err error) {
	data, err := readSmall(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, Generation{}, nil
	} else if err != nil {
		return nil, Generation{}, err
	}
	var raw rawGeneration
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, Generation{}, fmt.Errorf("%w: %s: %w", ErrConfig, path, err)
	}
	if g, err = raw.resolve(); err != nil {
		return nil, Generation{}, fmt.Errorf("%s: %w", path, err)
	}
	return raw.EOSTokenID, g, nil
}

// resolve checks the recommendation. A file that leaves out the temperature
// means 1, as in transformers; filters that it leaves out keep all tokens.
func (r *rawGeneration) resolve() (Generation, error) {
	if !r.DoSample {
		return Generation{}, nil
	}
	g := Generation{Temperature: 1}
	for _, f := range []struct {
		name  string
		from  *float64
		to    *float64
		limit float64
	}{
		{"temperature", r.Temperature, &g.Temperature, 100},
		{"top_p", r.TopP, &g.TopP, 1},
		{"min_p", r.MinP, &g.MinP, 1},
	} {
		if f.from == nil {
			continue
		}
		if *f.from < 0 || *f.from > f.limit {
			return Generation{}, fmt.Errorf("%w: %s is %g, expected 0 to %g", ErrConfig, f.name, *f.from, f.limit)
		}
		*f.to = *f.from
	}
	if r.TopK != nil {
		if *r.TopK < 0 {
			return Generation{}, fmt.Errorf("%w: top_k is %d", ErrConfig, *r.TopK)
		}
		g.TopK = *r.TopK
	}
	return g, nil
}
