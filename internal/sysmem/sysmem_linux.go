package sysmem

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func available() (Memory, bool) { return read("/") }

// read takes the files from under root: the kernel's own estimate of what can
// be had without swapping, or the room left under the lowest limit of the
// process's control groups, whichever is lower.
func read(root string) (Memory, bool) {
	m := Memory{Bytes: math.MaxInt64}
	for line := range strings.Lines(text(filepath.Join(root, "proc/meminfo"))) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
			if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil && kb >= 0 && kb < math.MaxInt64>>10 {
				m = Memory{Bytes: kb << 10, Of: "free on this machine"}
			}
		}
	}
	for _, group := range groups(root) {
		if left, ok := group.left(); ok && left < m.Bytes {
			m = Memory{Bytes: left, Of: "left under this process's memory limit (control group)"}
		}
	}
	return m, m.Of != ""
}

// group is a control group's folder and the names of its files, which differ
// between the two versions.
type group struct{ dir, limit, usage string }

// groups lists the process's memory groups and those above them, which limit it
// too. A container sees its own group as the root of the hierarchy.
func groups(root string) []group {
	var out []group
	for line := range strings.Lines(text(filepath.Join(root, "proc/self/cgroup"))) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var g group
		switch {
		case parts[0] == "0" && parts[1] == "":
			g = group{filepath.Join(root, "sys/fs/cgroup"), "memory.max", "memory.current"}
		case strings.Contains(","+parts[1]+",", ",memory,"):
			g = group{filepath.Join(root, "sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"}
		default:
			continue
		}
		// Joined with "/", so that no ".." leads out.
		for path := filepath.Join("/", parts[2]); ; path = filepath.Dir(path) {
			out = append(out, group{filepath.Join(g.dir, path), g.limit, g.usage})
			if path == "/" {
				break
			}
		}
	}
	return out
}

// left is the group's limit less what it uses and cannot give back: cached
// files can be dropped.
func (g group) left() (int64, bool) {
	limit, ok := number(filepath.Join(g.dir, g.limit)) // "max" is no number
	if !ok {
		return 0, false
	}
	used, _ := number(filepath.Join(g.dir, g.usage))
	for line := range strings.Lines(text(filepath.Join(g.dir, "memory.stat"))) {
		if f := strings.Fields(line); len(f) == 2 && (f[0] == "inactive_file" || f[0] == "active_file") {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				used -= n
			}
		}
	}
	return max(0, limit-max(0, used)), true
}

func number(path string) (int64, bool) {
	n, err := strconv.ParseInt(strings.TrimSpace(text(path)), 10, 64)
	return n, err == nil && n >= 0
}

// text is empty for what cannot be read: the kernel may be without it.
func text(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}
