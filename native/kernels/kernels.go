// Package kernels holds C and C++ sources that the installer compiles into
// libmlxc.so on Linux, besides those of mlx-c.
package kernels

import _ "embed"

// Source is a file to compile, and what it includes.
type Source struct {
	Name  string // of the file, which it may include itself by
	Text  []byte
	Other map[string][]byte // files that must lie beside it, by their names
	Flags []string          // of the compiler, language included
	// CUDA says that it is for the CUDA build alone, and compiled as mlx-c is, with
	// cuda.h besides.
	CUDA bool
}

//go:embed sgemm.c
var sgemm []byte

//go:embed nvrtc.c
var nvrtc []byte

//go:embed store.h
var store []byte

//go:embed relaunch.cpp
var relaunch []byte

//go:embed launch.h
var launch []byte

// Sources returns all there is. What is C is C++ as well, so that a C++ compiler
// alone suffices, and the head of each states its contract:
//
//   - sgemm.c: cblas_sgemm, in place of the reference BLAS of MLX's CPU wheel,
//     with results that do not depend on how many rows are multiplied at once.
//     No flag may be added that permits contraction or reassociation.
//   - nvrtc.c: a cache on disk for the kernels that MLX's CUDA build compiles at
//     run time.
//   - relaunch.cpp: kernels launched again as one CUDA graph, and in clusters.
func Sources() []Source {
	return []Source{
		{Name: "sgemm.c", Text: sgemm, Flags: []string{"-x", "c++", "-std=c++17", "-O3", "-fPIC", "-ffp-contract=off"}},
		{Name: "nvrtc.c", Text: nvrtc, Other: map[string][]byte{"store.h": store}, Flags: []string{"-x", "c++", "-std=c++17", "-O2", "-fPIC"}},
		{Name: "relaunch.cpp", Text: relaunch, Other: map[string][]byte{"launch.h": launch}, CUDA: true},
	}
}
