package stoptext

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// cut is the rule written down: the text before the stop text that is complete
// first, of those that end at one place the longest.
func cut(text string, stops []string) (string, int) {
	for end := range len(text) + 1 {
		found := -1
		for i, stop := range stops {
			if strings.HasSuffix(text[:end], stop) && (found < 0 || len(stop) > len(stops[found])) {
				found = i
			}
		}
		if found >= 0 {
			return text[:end-len(stops[found])], found
		}
	}
	return text, -1
}

// longest is how many bytes at the end of a text may begin a stop text.
func longest(text string, stops []string) int {
	for n := range len(text) + 1 {
		if slices.ContainsFunc(stops, func(s string) bool { return strings.HasPrefix(s, text[n:]) }) {
			return len(text) - n
		}
	}
	return 0
}

// Cases 26, 28 and 29 by name, at every cut into two pieces.
func TestStops(t *testing.T) {
	for _, c := range []struct {
		text  string
		stops []string
		want  string
		stop  int
	}{
		{"The quick brown fox", []string{"own fox"}, "The quick br", 0},
		{"xxabyy", []string{"ab", "abcdef"}, "xx", 0},
		{"xxabyy", []string{"abcdef", "ab"}, "xx", 1},
		{"aaab", []string{"aab"}, "a", 0},
		{"xab", []string{"ab", "xab"}, "", 1},
		{"xabc", []string{"abc", "b"}, "xa", 1},
		{"The quick brown f", []string{"own fox"}, "The quick brown f", -1},
		{"ab", []string{"ab", "ab"}, "", 0},
		{"", []string{"a"}, "", -1},
	} {
		for at := range len(c.text) + 1 {
			m := New(c.stops).Matcher()
			out, stop := m.Push(c.text[:at])
			if stop < 0 {
				var more string
				more, stop = m.Push(c.text[at:])
				out += more
			}
			out += m.Flush()
			require.Equal(t, c.want, out, "%q %q at %d", c.text, c.stops, at)
			require.Equal(t, c.stop, stop)
		}
	}
}

// Random texts, stops and pieces: what comes out is the rule's text, released
// once, as whole characters, and never later than it must be.
func TestAny(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := []string{"a", "a", "b", "ä", "😀"}
	word := func(n int) string {
		var b strings.Builder
		for range n {
			b.WriteString(letters[rng.IntN(len(letters))])
		}
		return b.String()
	}
	stopped := 0
	for range 1500 {
		text := word(rng.IntN(40))
		stops := make([]string, 1+rng.IntN(4))
		for i := range stops {
			stops[i] = word(1 + rng.IntN(5))
		}
		want, wantStop := cut(text, stops)
		m := New(stops).Matcher()
		var out strings.Builder
		seen, stop := 0, -1
		for seen < len(text) && stop < 0 {
			end := seen + 1 + rng.IntN(6)
			for end < len(text) && !utf8.RuneStart(text[end]) {
				end++
			}
			end = min(end, len(text))
			tried := m
			tryOut, tryStop := tried.Push(text[seen:end])
			piece, found := m.Push(text[seen:end])
			require.Equal(t, piece, tryOut, "a copy does not touch the original")
			require.Equal(t, found, tryStop)
			require.True(t, utf8.ValidString(piece))
			out.WriteString(piece)
			seen, stop = end, found
			if stop < 0 {
				require.Equal(t, seen-longest(text[:seen], stops), out.Len(), "%q of %q", text[:seen], stops)
			}
		}
		if stop < 0 {
			out.WriteString(m.Flush())
		} else {
			stopped++
		}
		require.Empty(t, m.Flush())
		require.Equal(t, want, out.String(), "%q %q", text, stops)
		require.Equal(t, wantStop, stop, "%q %q", text, stops)
	}
	require.Greater(t, stopped, 400)
}

// A megabyte of a repeated letter against stop texts of half of it: what is held
// is not copied again and again.
func TestLinear(t *testing.T) {
	const n = 1 << 20
	text := strings.Repeat("a", n)
	s := New([]string{text[:n/2] + "b", text[:n/4] + "c"})
	m := s.Matcher()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	released := 0
	for i := 0; i < n; i += 16 {
		out, stop := m.Push(text[i : i+16])
		if stop >= 0 {
			t.Fatal("a stop text that is not there")
		}
		released += len(out)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(4*n))
	require.Equal(t, n/2, released)
	require.Len(t, m.Flush(), n/2)
	_, stop := m.Push(text[:n/2] + "b")
	require.Zero(t, stop)
}

func TestNone(t *testing.T) {
	var s *Set
	m := s.Matcher()
	out, stop := m.Push("abc")
	require.Equal(t, "abc", out)
	require.Negative(t, stop)
	require.Empty(t, m.Flush())
}
