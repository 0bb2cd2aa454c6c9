package sysmem

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRead(t *testing.T) {
	const (
		meminfo = "MemTotal:       24596676 kB\nMemFree:        20000000 kB\nMemAvailable:    1000 kB\n"
		machine = "free on this machine"
		limited = "left under this process's memory limit (control group)"
	)
	for name, c := range map[string]struct {
		files map[string]string
		bytes int64
		of    string
	}{
		"nothing is known":     {nil, 0, ""},
		"no control group":     {map[string]string{"proc/meminfo": meminfo}, 1000 << 10, machine},
		"damaged":              {map[string]string{"proc/meminfo": "MemAvailable: 99999999999999999999 kB\n", "proc/self/cgroup": "nonsense\n0\n"}, 0, ""},
		"no limit":             {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"}, 1000 << 10, machine},
		"a limit above":        {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "99999999999\n"}, 1000 << 10, machine},
		"a limit and no usage": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "5000\n"}, 5000, limited},
		"a parent's limit": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n",
			"sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/memory.current": "4000\n",
			"sys/fs/cgroup/a/memory.stat": "anon 100\ninactive_file 300\nactive_file 200\n",
		}, 1500, limited},
		"used up": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/memory.current": "6000\n",
		}, 0, limited},
		"first version": {map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/docker/1\n0::/\n",
			"sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "7000\n", "sys/fs/cgroup/memory/docker/1/memory.usage_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 6000, limited},
		"a path that leads out": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../../a\n", "a/memory.max": "1\n"}, 1000 << 10, machine},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(root, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			m, ok := read(root)
			require.Equal(t, c.of != "", ok)
			require.Equal(t, c.of, m.Of)
			if ok {
				require.Equal(t, c.bytes, m.Bytes)
			}
		})
	}
}

func TestThisMachine(t *testing.T) {
	m, ok := Available()
	require.True(t, ok)
	require.Positive(t, m.Bytes)
}
