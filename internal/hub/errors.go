package hub

import "errors"

// Errors to compare with errors.Is. The text of what is returned says which
// model and file, and what to do.
var (
	// ErrName: no owner/name[@revision], or a file name that leaves its folder.
	ErrName = errors.New("bad name")
	// ErrNotCached: the cache lacks the model, or a part of it.
	ErrNotCached = errors.New("not in the local cache")
	// ErrOffline: the network would be needed and was switched off.
	ErrOffline = errors.New("offline")
	// ErrAuth: the hub wants a token, another one, or its licence accepted.
	ErrAuth = errors.New("access denied")
	// ErrNotFound: the hub has no such model, revision or file.
	ErrNotFound = errors.New("not found")
	// ErrRateLimited: the hub asked to wait for longer than this package waits.
	ErrRateLimited = errors.New("rate limited")
	// ErrCorrupt: what was received is not what the hub announced.
	ErrCorrupt = errors.New("corrupt download")
)
