package mlx_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/mlx"
)

// ringMember is the variable that makes this test binary one process of three.
const ringMember = "GODFLASH_TEST_RING"

// Three processes over MLX's ring of TCP connections: every collective gives each
// process what its documentation says.
func TestRing(t *testing.T) {
	if os.Getenv(ringMember) != "" {
		ringProcess(t)
		return
	}
	lib := open(t)
	var available bool
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		available = s.GroupAvailable("ring")
		return nil
	}))
	if !available {
		t.Skip("this build of MLX has no ring backend")
	}
	const n = 3
	var hosts [][]string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		hosts = append(hosts, []string{l.Addr().String()})
		require.NoError(t, l.Close()) // the process of that rank listens there next
	}
	text, err := json.Marshal(hosts)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "hosts.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	exe, err := os.Executable()
	require.NoError(t, err)

	type outcome struct {
		rank int
		out  []byte
		err  error
	}
	ended := make(chan outcome, n)
	var running []*exec.Cmd
	for rank := range n {
		cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestRing$", "-test.v")
		cmd.Env = append(os.Environ(), ringMember+"=1", fmt.Sprintf("MLX_RANK=%d", rank), "MLX_HOSTFILE="+file)
		running = append(running, cmd)
		go func() {
			out, err := cmd.CombinedOutput()
			ended <- outcome{rank, out, err}
		}()
	}
	deadline := time.After(time.Minute)
	for range n {
		select {
		case o := <-ended:
			require.NoError(t, o.err, "process %d: %s", o.rank, o.out)
		case <-deadline:
			for _, cmd := range running {
				_ = cmd.Process.Kill()
			}
			t.Fatal("the processes wait for each other")
		}
	}
}

func ringProcess(t *testing.T) {
	lib := open(t)
	require.NoError(t, lib.Do(t.Context(), func(s *mlx.Scope) error {
		g := s.Group(mlx.GroupOptions{Backend: "ring", Strict: true})
		require.NoError(t, s.Err())
		require.Equal(t, 3, g.Size())
		require.Equal(t, os.Getenv("MLX_RANK"), fmt.Sprint(g.Rank()))
		r := float32(g.Rank())
		x := mlx.FromSlice(s, []float32{r, 10 * r, -r})
		equal := func(what string, a mlx.Array, want ...float32) {
			got, err := mlx.ToSlice[float32](a)
			require.NoError(t, err, what)
			require.True(t, slices.Equal(want, got), "%s in process %d: %v, want %v", what, g.Rank(), got, want)
		}
		equal("AllSum", s.AllSum(x, g), 3, 30, -3)
		equal("AllMax", s.AllMax(x, g), 2, 20, 0)
		equal("AllMin", s.AllMin(x, g), 0, 0, -2)
		equal("AllGather", s.AllGather(x, g), 0, 0, 0, 1, 10, -1, 2, 20, -2)
		// A ring: each sends to the next, so the first receives before it sends.
		next, before := (g.Rank()+1)%3, (g.Rank()+2)%3
		if g.Rank() == 0 {
			equal("Recv", s.RecvLike(x, before, g), 2, 20, -2)
			equal("Send", s.Send(x, next, g), 0, 0, 0)
		} else {
			equal("Send", s.Send(x, next, g), r, 10*r, -r)
			b := float32(before)
			equal("Recv", s.RecvLike(x, before, g), b, 10*b, -b)
		}
		return nil
	}))
}
