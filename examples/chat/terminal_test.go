//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is the program on a pseudo-terminal, and what it has shown.
type terminal struct {
	t    *testing.T
	pty  *os.File
	cmd  *exec.Cmd
	mu   sync.Mutex
	seen bytes.Buffer
	from int
}

func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	pty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { pty.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(pty.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(pty.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer tty.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 200}))

	exe, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	c := &terminal{t: t, pty: pty, cmd: exec.CommandContext(ctx, exe, args...)}
	c.cmd.Env = append(os.Environ(), asProgram+"=1", "TERM=xterm", "NO_COLOR=", "XDG_CACHE_HOME="+t.TempDir(), "GODFLASH_CACHE="+installed(t))
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = tty, tty, tty
	c.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, c.cmd.Start())
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := pty.Read(buf)
			c.mu.Lock()
			c.seen.Write(buf[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return c
}

// installed is where the native library lies although the cache folder moves.
func installed(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("GODFLASH_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	require.NoError(t, err)
	return filepath.Join(dir, "godflash")
}

// expect waits until the program has shown text, after what was expected before.
func (c *terminal) expect(text string) {
	c.t.Helper()
	require.Eventually(c.t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := strings.Index(c.seen.String()[c.from:], text)
		if i >= 0 {
			c.from += i + len(text)
		}
		return i >= 0
	}, time.Minute, 5*time.Millisecond, "waiting for %q", text)
}

func (c *terminal) send(keys string) {
	c.t.Helper()
	_, err := c.pty.WriteString(keys)
	require.NoError(c.t, err)
}

// Line editing with wide characters, the history, Ctrl-C in an answer and at the
// prompt, Ctrl-D: as a person does it.
func TestTerminal(t *testing.T) {
	c := onTerminal(t, "-model", pair(t), "-think", "off")
	c.expect("/help lists the commands.")
	c.expect("> ")
	c.send("漢字é\x7f\x7f\x7f/stats\r") // three letters, three backspaces
	c.expect("No answer yet.")
	c.expect("> ")
	c.send("\x1b[A\r") // the line before
	c.expect("No answer yet.")
	c.expect("> ")
	c.send("\x03") // Ctrl-C at the prompt
	c.expect("Ctrl-D or /quit ends.")
	c.expect("> ")
	c.send("Write all functions that there are, one after the other.\r")
	c.expect("\n")
	time.Sleep(300 * time.Millisecond) // some of the answer
	c.send("\x03")
	c.expect("(stopped)")
	c.expect("> ")
	c.send("/stats\r")
	c.expect("tokens per cycle")
	c.send("/save " + filepath.Join(t.TempDir(), "talk.json") + "\r")
	c.expect("2 messages saved")
	c.expect("> ")
	c.send("\x04")
	require.NoError(t, c.cmd.Wait())
	history, err := filepath.Glob(filepath.Join(strings.TrimPrefix(c.cmd.Env[len(c.cmd.Env)-2], "XDG_CACHE_HOME="), "godflash", "chat-history"))
	require.NoError(t, err)
	require.Len(t, history, 1)
	lines, err := os.ReadFile(history[0])
	require.NoError(t, err)
	require.Contains(t, string(lines), "Write all functions")
}
