// Package safetensors reads the headers of safetensors files and the file list
// of a checkpoint folder, without touching the weights themselves.
//
// A safetensors file is an 8-byte little-endian length N, N bytes of JSON that
// map each tensor's name to its dtype, shape and data_offsets, then the data.
// The checks are those of the format's description: offsets inside the file,
// neither overlap nor hole, and exactly as many bytes as shape and dtype say.
package safetensors
