package openai

import (
	"net/http"
	"strings"
	"time"
)

// model describes the model in OpenAI's form and in Anthropic's at once. It has
// no path of this machine in it.
func (h *Handler) model() map[string]any {
	info := h.backend.Info()
	m := map[string]any{
		"id": h.opts.Model, "object": "model", "created": h.started.Unix(), "owned_by": "godflash",
		"type": "model", "display_name": h.opts.Model, "created_at": h.started.UTC().Format(time.RFC3339),
	}
	s := info.Sampling
	if h.opts.Sampling != nil {
		s = *h.opts.Sampling
	}
	m["context_length"], m["max_model_len"] = info.ContextLength, info.ContextLength
	m["sampling"] = map[string]any{"temperature": s.Temperature, "top_k": s.TopK, "top_p": s.TopP, "min_p": s.MinP}
	m["model_type"], m["quantization"], m["revision"] = info.ModelType, info.Quantization, info.Commit
	m["draft"] = map[string]any{"block_size": info.BlockSize, "repo": info.DraftRepo, "revision": info.DraftCommit, "loaded": info.BlockSize > 0}
	return m
}

func (h *Handler) listModels(c *call) {
	c.json(http.StatusOK, map[string]any{
		"object": "list", "data": []any{h.model()},
		"has_more": false, "first_id": h.opts.Model, "last_id": h.opts.Model,
	})
}

func (h *Handler) oneModel(c *call) {
	name := strings.TrimPrefix(c.r.URL.Path, "/v1/models/")
	if !h.isModel(name) {
		c.fail(h.noModel(name))
		return
	}
	c.json(http.StatusOK, h.model())
}
