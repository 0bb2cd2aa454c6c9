// Package problems collects all that is wrong with one thing, so that a user
// hears of everything at once.
package problems

import (
	"errors"
	"fmt"
	"strings"
)

// List is what was found so far. The zero value is nothing.
type List []error

// Add appends what is wrong; nil is nothing.
func (l *List) Add(err error) {
	if err != nil {
		*l = append(*l, err)
	}
}

// Addf appends a problem of a kind: the error wraps kind.
func (l *List) Addf(kind error, format string, args ...any) {
	*l = append(*l, fmt.Errorf("%w: "+format, append([]any{kind}, args...)...))
}

// Err is nil for an empty list, the only error of a list of one, and otherwise an
// error that wraps all of them and whose text is theirs, in one line.
func (l List) Err() error {
	switch len(l) {
	case 0:
		return nil
	case 1:
		return l[0]
	}
	return &several{l}
}

type several struct{ all List }

func (e *several) Error() string {
	texts := make([]string, len(e.all))
	for i, err := range e.all {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

func (e *several) Unwrap() []error { return e.all }

// All are the single errors in one that may be of a list, lists of lists included.
func All(err error) []error {
	var e *several
	if !errors.As(err, &e) || error(e) != err {
		return []error{err}
	}
	var all []error
	for _, err := range e.all {
		all = append(all, All(err)...)
	}
	return all
}
