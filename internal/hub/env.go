package hub

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// FromEnv reads what huggingface_hub reads, in its order:
//
//   - Cache: HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub,
//     XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub
//   - Endpoint: HF_ENDPOINT, a mirror
//   - Token: HF_TOKEN, else the text of the file HF_TOKEN_PATH, else of
//     HF_HOME/token; HF_HOME is the folder above the cache's default
//   - Offline: HF_HUB_OFFLINE is 1, ON, YES or TRUE, in letters of any case
//
// An empty variable counts as unset. A leading ~ is the user's home folder.
func FromEnv() Options {
	home := env("HF_HOME")
	if home == "" {
		base := env("XDG_CACHE_HOME")
		if base == "" {
			base = expand("~/.cache")
		}
		home = filepath.Join(base, "huggingface")
	}
	o := Options{Endpoint: strings.TrimSpace(os.Getenv("HF_ENDPOINT"))}
	for _, dir := range []string{env("HF_HUB_CACHE"), env("HUGGINGFACE_HUB_CACHE"), filepath.Join(home, "hub")} {
		if dir != "" {
			o.Cache = dir
			break
		}
	}
	switch strings.ToUpper(strings.TrimSpace(os.Getenv("HF_HUB_OFFLINE"))) {
	case "1", "ON", "YES", "TRUE":
		o.Offline = true
	}
	o.Token = strings.TrimSpace(os.Getenv("HF_TOKEN"))
	if o.Token == "" {
		file := env("HF_TOKEN_PATH")
		if file == "" {
			file = filepath.Join(home, "token")
		}
		text, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			o.tokenErr = err
		}
		o.Token = strings.TrimSpace(string(text))
	}
	return o
}

func env(name string) string { return expand(strings.TrimSpace(os.Getenv(name))) }

// expand replaces a leading ~ by the home folder; without one it stays, and
// using the path fails with a message that shows it.
func expand(path string) string {
	if path != "~" && !strings.HasPrefix(path, "~/") {
		return path
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return path
	}
	return filepath.Join(home, path[1:])
}
