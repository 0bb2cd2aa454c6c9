package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/godflash/godflash/internal/dist"
	"github.com/godflash/godflash/mlx"
)

// machine is where it was measured, and with which software.
type machine struct {
	Time     string `json:"time"` // UTC
	Device   string `json:"device"`
	GPU      string `json:"gpu,omitempty"`
	CPU      string `json:"cpu"`
	CPUs     int    `json:"cpus"`
	System   string `json:"system"` // GOOS/GOARCH
	Power    string `json:"power"`  // "unknown" where the system does not say
	Load     string `json:"load_average"`
	Governor string `json:"cpu_governor,omitempty"`

	LoadAfter string `json:"load_average_after"`

	Godflash string `json:"godflash"`
	Go       string `json:"go"`
	MLX      string `json:"mlx"`
	MLXC     string `json:"mlx_c"` // the release whose interface godflash calls
}

// hardware names what computes.
func (m machine) hardware() string {
	if m.GPU != "" {
		return m.GPU
	}
	return m.CPU
}

const unknown = "unknown"

func describeMachine(ctx context.Context, lib *mlx.Library) (machine, error) {
	m := machine{
		Time: time.Now().UTC().Format(time.RFC3339), Device: lib.Device().String(),
		CPU: cpuModel(ctx), CPUs: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH,
		Power: power(ctx), Load: loadAverage(ctx), Governor: firstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
		Godflash: version(), Go: runtime.Version(), MLX: lib.Version(), MLXC: dist.MLXCVersion,
	}
	if lib.Device() == mlx.DeviceGPU {
		devices, err := lib.Devices(ctx)
		if err != nil {
			return m, err
		}
		for _, d := range devices {
			if d.Type == mlx.DeviceGPU && m.GPU == "" {
				m.GPU, _ = d.Info["device_name"].(string)
			}
		}
	}
	return m, nil
}

// version is the module's version where the program was built from one, else the
// commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknown
	}
	out := info.Main.Version
	if out == "" || out == "(devel)" {
		out = unknown
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && !strings.Contains(out, s.Value[:min(12, len(s.Value))]):
			out = strings.TrimPrefix(out+" ", unknown+" ") + s.Value
		case s.Key == "vcs.modified" && s.Value == "true" && !strings.HasSuffix(out, "+dirty"):
			out += " with changes"
		}
	}
	return out
}

func cpuModel(ctx context.Context) string {
	if runtime.GOOS == "darwin" {
		return orUnknown(output(ctx, "sysctl", "-n", "machdep.cpu.brand_string"))
	}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return unknown
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return unknown
}

// loadAverage is the number of busy processes over 1, 5 and 15 minutes.
func loadAverage(ctx context.Context) string {
	if runtime.GOOS == "darwin" {
		return orUnknown(strings.Trim(output(ctx, "sysctl", "-n", "vm.loadavg"), "{} "))
	}
	if fields := strings.Fields(firstLine("/proc/loadavg")); len(fields) >= 3 {
		return strings.Join(fields[:3], " ")
	}
	return unknown
}

// power says whether the machine runs on mains or on its battery.
func power(ctx context.Context) string {
	if runtime.GOOS == "darwin" {
		first, _, _ := strings.Cut(output(ctx, "pmset", "-g", "batt"), "\n")
		_, source, ok := strings.Cut(first, "'")
		if source = strings.TrimSuffix(source, "'"); !ok || source == "" {
			return unknown
		}
		for line := range strings.Lines(output(ctx, "pmset", "-g")) {
			if f := strings.Fields(line); len(f) == 2 && f[0] == "lowpowermode" && f[1] == "1" {
				source += ", low power mode"
			}
		}
		return source
	}
	supplies, _ := filepath.Glob("/sys/class/power_supply/*")
	for _, dir := range supplies {
		if firstLine(filepath.Join(dir, "type")) != "Mains" {
			continue
		}
		switch firstLine(filepath.Join(dir, "online")) {
		case "1":
			return "mains"
		case "0":
			return "battery"
		}
	}
	return unknown
}

func firstLine(name string) string {
	data, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

// output is what a command of the system prints, empty where it fails.
func output(ctx context.Context, name string, args ...string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
