package dflash

import (
	"errors"

	"github.com/godflash/godflash/qwen"
)

// Errors to compare with errors.Is. The text of what is returned says where,
// and what to do.
var (
	// ErrPairMismatch: the drafter was made for another target.
	ErrPairMismatch = errors.New("drafter and target do not fit together")
	// ErrUnsupported: a checkpoint of a kind that is not run, or a request for what is
	// not done.
	ErrUnsupported = qwen.ErrUnsupported
	// ErrConfig: a configuration file that contradicts itself or lacks a field.
	ErrConfig = qwen.ErrConfig
	// ErrMemory: the weights need more memory than there is.
	ErrMemory = qwen.ErrMemory
	// ErrContextLength: the prompt leaves no room in the model's context.
	ErrContextLength = qwen.ErrContextLength
	// ErrEmptyPrompt: there is not one token to start from.
	ErrEmptyPrompt = errors.New("empty prompt")
	// ErrNonFinite: the model computed NaN or infinite scores. The text names the
	// first layer that did, as far as running the tokens again shows it.
	ErrNonFinite = errors.New("the model's scores are not finite")
	// ErrRequest: a field of the request is out of range or contradicts another.
	ErrRequest = errors.New("bad request")
	// ErrSnapshot: a saved session is damaged, or of other models or another
	// version.
	ErrSnapshot = errors.New("the snapshot cannot be restored")
	// ErrClosed: the engine, session or decoder was closed.
	ErrClosed = errors.New("closed")
	// ErrBusy: the session already runs a generation or another call of its own.
	ErrBusy = errors.New("a generation is already running in this session")
)
