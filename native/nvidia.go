package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
)

// minDriver is the oldest NVIDIA driver that runs CUDA 13.
const minDriver = 580

var driverVersion = regexp.MustCompile(`NVRM version:.*?\s(\d+)\.\d+`)

// nvidiaDriver looks for an NVIDIA driver without loading anything.
func nvidiaDriver() (major int, found bool) {
	if data, err := os.ReadFile("/proc/driver/nvidia/version"); err == nil {
		return parseDriver(data), true
	}
	for _, dir := range []string{
		"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib",
	} {
		if _, err := os.Stat(filepath.Join(dir, "libcuda.so.1")); err == nil {
			return 0, true
		}
	}
	return 0, false
}

// parseDriver reads the major version out of /proc/driver/nvidia/version; 0
// where it is not there.
func parseDriver(data []byte) int {
	m := driverVersion.FindSubmatch(data)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}
