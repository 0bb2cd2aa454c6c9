//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package mlx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// Run with CGO_ENABLED=0: the package builds, and Open says what is needed.
func TestUnsupportedPlatform(t *testing.T) {
	_, err := mlx.Open(nil)
	require.ErrorIs(t, err, mlx.ErrUnsupportedPlatform)
	require.Regexp(t, "CGO_ENABLED=1|needed is Linux", err.Error())
}
