// Package nn holds the layers that the target models and the drafter share:
// linear maps, norms, the gated feed-forward and the preallocated key and
// value rows of attention.
//
// Nothing here knows of checkpoints. Every type is a plain struct of arrays
// that a model's scope owns; every method takes the scope of the running
// round, in which the results live.
package nn
