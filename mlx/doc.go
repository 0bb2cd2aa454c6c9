// Package mlx calls Apple's MLX array library through mlx-c.
package mlx
