// Package kernels holds C sources that the installer compiles into libmlxc.so
// on Linux, besides those of mlx-c.
package kernels

import _ "embed"

// SGEMM is the C source of cblas_sgemm: a replacement for the reference BLAS of
// MLX's CPU wheel whose results do not depend on how many rows are multiplied
// at once. Write it to a file named sgemm.c (it includes itself by that name)
// and compile it with [SGEMMFlags]; the head of the file states its contract.
//
//go:embed sgemm.c
var SGEMM []byte

// SGEMMFlags returns the compiler's flags for [SGEMM], language included: the
// source is C and C++ alike, so a C++ compiler alone suffices. Nothing that
// permits contraction or reassociation may be added to them.
func SGEMMFlags() []string {
	return []string{"-x", "c++", "-std=c++17", "-O3", "-fPIC", "-ffp-contract=off"}
}
