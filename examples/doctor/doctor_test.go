package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/internal/fixture"
	"github.com/godflash/godflash/mlx"
)

// asProgram makes the test binary be the program.
const asProgram = "GODFLASH_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

const commit = "0123456789012345678901234567890123456789"

// cacheOf makes the hub's cache of models: folders of testdata by their ids.
func cacheOf(t *testing.T, models map[string]string) string {
	t.Helper()
	cache := t.TempDir()
	for id, folder := range models {
		repo := filepath.Join(cache, "models--"+strings.ReplaceAll(id, "/", "--"))
		snapshot := filepath.Join(repo, "snapshots", commit)
		require.NoError(t, os.MkdirAll(snapshot, 0o755))
		require.NoError(t, os.MkdirAll(filepath.Join(repo, "refs"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(repo, "refs/main"), []byte(commit), 0o644))
		source := filepath.Join(fixture.Testdata(t), folder)
		entries, err := os.ReadDir(source)
		require.NoError(t, err)
		for _, e := range entries {
			require.NoError(t, os.Symlink(filepath.Join(source, e.Name()), filepath.Join(snapshot, e.Name())))
		}
	}
	t.Setenv("HF_HUB_CACHE", cache)
	return cache
}

type result struct {
	OK     bool
	Checks []check
}

func (r result) named(name string) (found []check) {
	for _, c := range r.Checks {
		if c.Name == name {
			found = append(found, c)
		}
	}
	return found
}

func doctor(t *testing.T, status int, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	require.Equal(t, status, run(t.Context(), append([]string{"-json"}, args...), &stdout, &stderr), "%s%s", &stdout, &stderr)
	require.Empty(t, stderr.String())
	var r result
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &r))
	require.Equal(t, status == 0, r.OK)
	for _, c := range r.Checks {
		require.Equal(t, c.Status == problem, c.Fix != "" && c.Status != note, "%+v: a fix for each problem", c)
		require.NotEmpty(t, c.Detail)
	}
	return r
}

func TestHealthy(t *testing.T) {
	cacheOf(t, map[string]string{
		"Qwen/Qwen3.5-4B":         "tiny-qwen3.5/target",
		"z-lab/Qwen3.5-4B-DFlash": "tiny-qwen3.5/draft",
		"Qwen/Qwen3-32B":          "tiny-qwen3/target",
		"mlx-community/Qwen3-8B":  "tiny-qwen3/target",
	})
	r := doctor(t, 0, "-model", "qwen3.5-4b", "-tokens", "24")
	for _, name := range []string{"system", "library", "device", "memory", "arithmetic", "kernels", "cache", "text", "speed"} {
		require.Len(t, r.named(name), 1, name)
	}
	require.Contains(t, r.named("library")[0].Detail, "MLX ")
	require.Contains(t, r.named("cache")[0].Detail, "4 models in "+os.Getenv("HF_HUB_CACHE"))
	require.Len(t, r.named("drafter"), 1)
	models := r.named("model")
	require.Len(t, models, 3)
	require.Contains(t, models[0].Detail, "no drafter is known for it")
	require.Contains(t, models[1].Detail, "drafts by z-lab/Qwen3.5-4B-DFlash")
	require.Equal(t, good, models[1].Status)
	require.Contains(t, models[2].Detail, "its drafter is not cached")
	require.Equal(t, "hf download z-lab/Qwen3-8B-DFlash-b16", models[2].Fix)
	require.Contains(t, r.named("text")[0].Detail, "24 tokens")
	require.Equal(t, good, r.named("text")[0].Status)
	require.Contains(t, r.named("device")[0].Detail, "runs on the CPU")
	require.Regexp(t, `^[0-9.]+ GiB free on this machine`, r.named("memory")[0].Detail)
	require.Contains(t, r.named("arithmetic")[0].Detail, "rows do not depend on how many")
}

// A model without a drafter is run all the same, and one of another kind says why
// it is not.
func TestWithoutDrafter(t *testing.T) {
	cacheOf(t, map[string]string{"Qwen/Qwen3-32B": "tiny-qwen3/target-mxfp4"})
	llama := filepath.Join(os.Getenv("HF_HUB_CACHE"), "models--meta--Llama", "snapshots", commit)
	require.NoError(t, os.MkdirAll(llama, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(llama, "config.json"), []byte(`{"model_type": "llama"}`), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(llama, "model.safetensors"), []byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"), 0o644))

	r := doctor(t, 0, "-model", "Qwen3-32B", "-tokens", "5")
	require.Contains(t, r.named("model")[0].Detail, "qwen3, 4-bit mxfp4; no drafter is known for it")
	require.Equal(t, note, r.named("text")[0].Status)
	require.Contains(t, r.named("text")[0].Detail, "5 tokens")
	require.Contains(t, r.named("text")[0].Detail, "no drafter is known for Qwen3-32B")
	require.Contains(t, r.named("others")[0].Detail, "meta/Llama@"+commit)

	r = doctor(t, 1, "-model", "meta/Llama@"+commit)
	require.Contains(t, r.named("text")[0].Detail, `model_type is "llama"`)
}

// TestProblems: each with status 1 and a fix, which doctor asserts.
func TestProblems(t *testing.T) {
	t.Run("a drafter of another target", func(t *testing.T) {
		cacheOf(t, map[string]string{"Qwen/Qwen3.5-4B": "tiny-qwen3.5/target", "z-lab/Qwen3.5-4B-DFlash": "tiny-qwen3/draft"})
		r := doctor(t, 1, "-model", "Qwen/Qwen3.5-4B")
		require.Equal(t, problem, r.named("model")[0].Status)
		require.Equal(t, problem, r.named("text")[0].Status)
		require.Contains(t, r.named("text")[0].Detail, "do not fit together")
	})
	t.Run("damaged files in the cache", func(t *testing.T) {
		cache := cacheOf(t, map[string]string{"Qwen/Qwen3.5-4B": "tiny-qwen3.5/target", "z-lab/Qwen3.5-4B-DFlash": "tiny-qwen3.5/draft"})
		for _, id := range []string{"Qwen--Qwen3.5-4B", "z-lab--Qwen3.5-4B-DFlash"} {
			file := filepath.Join(cache, "models--"+id, "snapshots", commit, "model.safetensors")
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.WriteFile(file, []byte("<!doctype html>"), 0o644))
		}
		r := doctor(t, 1)
		for _, name := range []string{"model", "drafter"} {
			require.Equal(t, problem, r.named(name)[0].Status)
			require.Contains(t, r.named(name)[0].Detail, "web page")
			require.Contains(t, r.named(name)[0].Fix, "hf download --force-download ")
		}
	})
	t.Run("no such model", func(t *testing.T) {
		cache := cacheOf(t, nil)
		r := doctor(t, 1, "-model", "Qwen/Qwen3.5-4B")
		require.Contains(t, r.named("text")[0].Detail, cache)
		require.Contains(t, r.named("text")[0].Detail, "hf download Qwen/Qwen3.5-4B")
	})
	t.Run("no library", func(t *testing.T) {
		cacheOf(t, nil)
		exe, err := os.Executable()
		require.NoError(t, err)
		// A process of its own: this one has a library already, and keeps it.
		cmd := exec.CommandContext(t.Context(), exe, "-json")
		cmd.Env = append(os.Environ(), asProgram+"=1", mlx.LibraryEnv+"="+filepath.Join(t.TempDir(), "nothing.so"))
		stdout, err := cmd.Output()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		require.Equal(t, 1, exit.ExitCode(), "%s", exit.Stderr)
		var r result
		require.NoError(t, json.Unmarshal(stdout, &r))
		require.Contains(t, r.named("library")[0].Detail, "nothing.so")
		require.Contains(t, r.named("library")[0].Fix, "go run ./native")
		require.Empty(t, r.named("arithmetic"))
		require.Len(t, r.named("cache"), 1, "the other checks are made all the same")
	})
	t.Run("a bad endpoint", func(t *testing.T) {
		cacheOf(t, nil)
		t.Setenv("HF_ENDPOINT", "mirror")
		r := doctor(t, 1)
		require.Contains(t, r.named("cache")[0].Detail, "HF_ENDPOINT")
	})
}

func TestCompare(t *testing.T) {
	of := func(d time.Duration, ids ...int) generation {
		return generation{ids, dflash.Stats{CompletionTokens: len(ids), Cycles: 1, Decode: d}}
	}
	for _, test := range []struct {
		name           string
		device         mlx.DeviceType
		drafted, plain generation
		text, speed    string
	}{
		{"the same", mlx.DeviceCPU, of(1, 1, 2, 3), of(2, 1, 2, 3), good, good},
		{"slower", mlx.DeviceCPU, of(2, 1, 2, 3), of(1, 1, 2, 3), good, note},
		{"another token on the CPU", mlx.DeviceCPU, of(1, 1, 2, 4), of(2, 1, 2, 3), problem, good},
		{"another token on a GPU", mlx.DeviceGPU, of(1, 1, 2, 4), of(2, 1, 2, 3), note, good},
		{"shorter", mlx.DeviceCPU, of(1, 1, 2), of(4, 1, 2, 3), problem, good},
		{"longer", mlx.DeviceCPU, of(1, 1, 2, 3), of(4, 1, 2), problem, good},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &report{}
			compare(r, test.device, test.drafted, test.plain)
			require.Len(t, r.checks, 2)
			require.Equal(t, test.text, r.checks[0].Status)
			require.Equal(t, test.speed, r.checks[1].Status)
			require.Equal(t, test.text != problem, r.ok())
		})
	}
}

func TestScreen(t *testing.T) {
	cacheOf(t, nil)
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), nil, &stdout, &stderr), "%s", &stdout)
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	require.Less(t, len(lines), 24, "one screen")
	require.True(t, strings.HasPrefix(lines[0], "ok       system"))
	require.Equal(t, "No problem found.", lines[len(lines)-1])

	stdout.Reset()
	require.Equal(t, 1, run(t.Context(), []string{"-model", "./nowhere"}, &stdout, &stderr))
	require.Contains(t, stdout.String(), "fix: ")
	require.True(t, strings.HasSuffix(stdout.String(), "1 problem.\n"))
	require.Empty(t, stderr.String())
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"-tokens", "0"},
		{"-tokens", "x"},
		{"-draft", "a"},
		{"-tokens", "8"},
		{"word"},
		{"-unknown"},
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, 2, run(t.Context(), args, &stdout, &stderr), args)
		require.Empty(t, stdout.String())
		require.Contains(t, stderr.String(), "doctor: ")
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-h"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "-model")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 130, run(ctx, nil, &stdout, &stderr))
}
