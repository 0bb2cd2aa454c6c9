// Package grammar says which tokens may come next so that a text becomes JSON of
// a given form.
//
// A form (a JSON schema, any JSON object, a reply with tool calls) is compiled
// to a network of nodes over bytes whose calls nest: a pushdown automaton. What
// the bytes so far allow is a State: a set of places in the network, each with
// its stack of returns. States are shared and never change, so that going back
// is keeping the old one.
//
// Mask gives the tokens that some text of the form goes on with. No state is a
// dead end: whatever the mask allows can be completed.
//
// A mask costs a walk through the vocabulary only once per node: tokens that
// stay inside the node's own rule are the same whatever lies on the stack, and
// only tokens that leave it (a string's closing quote and what follows) are
// walked again for each stack.
package grammar

import (
	"errors"
	"fmt"
)

// Errors to compare with errors.Is.
var (
	// ErrUnsupported: a schema asks for what is not done.
	ErrUnsupported = errors.New("not supported")
	// ErrSchema: a schema that is none, contradicts itself or is too large.
	ErrSchema = errors.New("bad schema")
)

// schemaError is an error at a JSON pointer of a schema.
func schemaError(kind error, v *value, format string, args ...any) error {
	return fmt.Errorf("%w: at %q: %w", kind, v.pointer(), fmt.Errorf(format, args...))
}
