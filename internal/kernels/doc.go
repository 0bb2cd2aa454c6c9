// Package kernels holds the GPU kernels of the models: the gated delta rule
// and attention, each with what stands around it, products with 4-bit weights,
// mixtures of experts, norms, the gate of a feed-forward.
//
// A kernel is one text that both CUDA and Metal compile, after a few macros of
// its own for each, or a CUDA text where Metal's stock operation is as good.
// Beside each stands the same computation in MLX's operations: it runs where
// the kernel fails, and the tests compare the two. On the CPU nothing here is
// used; New gives nil there, and a nil Set is a valid one without kernels.
//
// No kernel takes the number of rows as a template argument: a text is
// compiled once for a model, not once for each block length, and a row's
// arithmetic does not depend on how many rows run beside it. Runs as long as a
// prompt may go another way, with sums in another order.
package kernels
