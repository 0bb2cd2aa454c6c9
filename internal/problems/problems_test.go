package problems_test

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/internal/problems"
)

func TestList(t *testing.T) {
	var l problems.List
	require.NoError(t, l.Err())
	l.Add(nil)
	require.NoError(t, l.Err())

	first := errors.New("first")
	l.Add(first)
	require.Equal(t, first, l.Err(), "one error is itself")
	require.Equal(t, []error{first}, problems.All(l.Err()))

	l.Addf(fs.ErrClosed, "%s is %d", "b", 2)
	l.Add(problems.List{fs.ErrExist, fs.ErrNotExist}.Err())
	err := l.Err()
	require.EqualError(t, err, "first; file already closed: b is 2; file already exists; file does not exist")
	for _, kind := range []error{first, fs.ErrClosed, fs.ErrExist, fs.ErrNotExist} {
		require.ErrorIs(t, err, kind)
	}
	require.Len(t, problems.All(err), 4, "lists of lists are one")
	require.Len(t, problems.All(fmt.Errorf("all: %w", err)), 1, "what has a text of its own stays whole")
}
