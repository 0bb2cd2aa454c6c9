// Package qwen runs the Qwen language models on MLX: Qwen3 and the hybrid
// Qwen3.5 and 3.6 (gated delta rule and full attention), dense and mixture of
// experts, from the checkpoints that Hugging Face and MLX users have, quantised
// in MLX's schemes or not.
//
// A Model is read-only after Load and may serve many sequences; a Cache holds
// one sequence's state. A forward pass runs a block of tokens against a cache
// and leaves the block pending: Commit then keeps a prefix of it, so a
// speculative decoder can take a block and give part of it back.
//
//	err := lib.Do(ctx, func(s *mlx.Scope) error {
//		out := model.Forward(s, ids, cache, nil)
//		logits := model.Logits(s, out.Hidden)
//		…
//		return cache.Commit(s, n)
//	})
//
// ForwardOptions.Taps names decoder layers whose outputs the pass hands out,
// as DFlash drafters need them; tapping does not touch the caches.
//
// Names follow the papers and Hugging Face's configuration files.
package qwen
