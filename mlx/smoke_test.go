package mlx

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmoke(t *testing.T) {
	l, err := Open(nil)
	require.NoError(t, err)
	defer l.Close()
	t.Log(l.Version(), l.Path(), l.Device())
	err = l.Do(context.Background(), func(s *Scope) error {
		a := FromSlice(s, []float32{1, 2, 3, 4}, 2, 2)
		b := s.MatMul(a, a)
		t.Log(b, b.Shape(), b.Dtype())
		v, err := ToSlice[float32](s.Transpose(b))
		t.Log(v, err)
		require.NoError(t, s.SaveSafetensors(t.TempDir()+"/100%s.safetensors", map[string]Array{"b": b, "bt": s.Transpose(b)}, map[string]string{"k": "v"}))
		return err
	})
	require.NoError(t, err)
	require.Zero(t, l.LiveArrays())
	err = l.Do(context.Background(), func(s *Scope) error {
		s.Exp(s.MatMul(s.Zeros(Float32, 2, 3), s.Ones(Float32, 2, 3)))
		return nil
	})
	t.Log(err)
	require.Error(t, err)
}
