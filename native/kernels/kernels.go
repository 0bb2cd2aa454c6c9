// Package kernels holds C sources that the installer compiles into libmlxc.so
// on Linux, besides those of mlx-c.
package kernels

import _ "embed"

// Source is a file to compile, and what it includes.
type Source struct {
	Name  string // of the file, which it may include itself by
	Text  []byte
	Other map[string][]byte // files that must lie beside it, by their names
	Flags []string          // of the compiler, language included
}

//go:embed sgemm.c
var sgemm []byte

//go:embed nvrtc.c
var nvrtc []byte

//go:embed store.h
var store []byte

// Sources returns all there is. Each is C and C++ alike, so that a C++ compiler
// alone suffices, and the head of each states its contract:
//
//   - sgemm.c: cblas_sgemm, in place of the reference BLAS of MLX's CPU wheel,
//     with results that do not depend on how many rows are multiplied at once.
//     No flag may be added that permits contraction or reassociation.
//   - nvrtc.c: a cache on disk for the kernels that MLX's CUDA build compiles at
//     run time.
func Sources() []Source {
	return []Source{
		{Name: "sgemm.c", Text: sgemm, Flags: []string{"-x", "c++", "-std=c++17", "-O3", "-fPIC", "-ffp-contract=off"}},
		{Name: "nvrtc.c", Text: nvrtc, Other: map[string][]byte{"store.h": store}, Flags: []string{"-x", "c++", "-std=c++17", "-O2", "-fPIC"}},
	}
}
