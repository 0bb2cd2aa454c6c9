package tokenizer

import (
	"errors"
	"fmt"
)

var (
	// ErrMalformed marks a tokenizer file that is damaged or contradicts itself.
	ErrMalformed = errors.New("malformed tokenizer file")

	// ErrUnsupported marks a well-formed tokenizer file that asks for something
	// outside the Qwen family's arrangement.
	ErrUnsupported = errors.New("unsupported tokenizer")

	// ErrUnknownID marks an id that no token has. Rows of the embedding beyond
	// the last token (padding of the vocabulary) are such ids.
	ErrUnknownID = errors.New("unknown token id")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsupported, fmt.Sprintf(format, args...))
}
