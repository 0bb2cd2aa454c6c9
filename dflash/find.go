package dflash

import (
	"context"
	"fmt"

	"github.com/godflash/godflash/internal/hub"
	"github.com/godflash/godflash/internal/resolve"
)

// ErrNoModel: a name that is no folder, no model of the hub's cache and, where
// Options.Download allows it, none of the hub.
var ErrNoModel = resolve.ErrNoModel

// HubOptions say where models are looked up that are named owner/name. An empty
// field is what the environment says, under the names that Python's client
// reads: HF_HUB_CACHE, HF_HOME, HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH,
// HF_HUB_OFFLINE.
type HubOptions struct {
	Cache    string // folder of the cache, shared with Python's client
	Endpoint string // address of the hub or a mirror
	Token    string // for models that need one; it is sent to Endpoint alone
	Offline  bool   // forbids the network
	// Progress hears of a download as it goes. Nil: nobody.
	Progress func(DownloadProgress)
}

// DownloadProgress is a step of a download, in bytes.
type DownloadProgress struct {
	Model      string // owner/name, the drafter's included
	File       string
	Done, Size int64 // of the file; Size is -1 where the hub does not say
	// AllDone and AllSize are those of all of the model's files together.
	AllDone, AllSize int64
}

func (e *Engine) hub() (*hub.Client, error) {
	o := hub.FromEnv()
	o.Logger = e.opts.Logger
	if h := e.opts.Hub; h != nil {
		set := func(field *string, value string) {
			if value != "" {
				*field = value
			}
		}
		set(&o.Cache, h.Cache)
		set(&o.Endpoint, h.Endpoint)
		set(&o.Token, h.Token)
		o.Offline = o.Offline || h.Offline
		if h.Progress != nil {
			o.Progress = func(ev hub.Event) {
				h.Progress(DownloadProgress{
					Model: ev.Repo.ID(), File: ev.File,
					Done: ev.Done, Size: ev.Size, AllDone: ev.AllDone, AllSize: ev.AllSize,
				})
			}
		}
	}
	return hub.New(o)
}

// find turns the model's and the drafter's name into folders. Nothing is
// downloaded unless the caller allowed it.
func (e *Engine) find(ctx context.Context, model string) (resolve.Found, error) {
	o := &resolve.Options{Download: e.opts.Download, Draft: e.opts.Draft, NoDraft: e.opts.NoDraft, Logger: e.opts.Logger}
	client, hubErr := e.hub()
	if hubErr == nil {
		o.Hub = client
	}
	found, err := resolve.Find(ctx, model, o)
	if hubErr == nil {
		return found, err
	}
	if err != nil {
		return resolve.Found{}, fmt.Errorf("%w: %w", ErrRequest, hubErr)
	}
	// Folders need no hub: an environment that names a wrong one does not matter.
	e.opts.Logger.Warn("the hub cannot be used", "error", hubErr)
	return found, nil
}
