package hub

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

func symlink(target, link string) error { return os.Symlink(target, link) }

// link gives a blob its name in the snapshot: a relative symbolic link, or
// where the system makes none (Windows without the right, some file systems) a
// hard link, or a copy.
func (c *Client) link(blob, snapshot, name string) error {
	dest := filepath.Join(snapshot, filepath.FromSlash(name))
	dir := filepath.Dir(dest)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	want, err := os.Stat(blob)
	if err != nil {
		return err
	}
	if have, err := os.Stat(dest); err == nil && os.SameFile(have, want) {
		return nil
	}
	target, err := filepath.Rel(dir, blob)
	if err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.godflash-%016x", dest, rand.Uint64())
	if symErr := c.symlink(target, temp); symErr != nil {
		c.opts.Logger.Debug("hub: no symbolic links here", "error", symErr)
		if err := os.Link(blob, temp); err != nil {
			if err := copyFile(blob, temp); err != nil {
				os.Remove(temp)
				return err
			}
		}
	}
	if err := os.Rename(temp, dest); err != nil {
		os.Remove(temp)
		return err
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	if err := out.Sync(); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// writeRef notes the commit of a revision, in one step for readers.
func writeRef(dir, revision, commit string) error {
	path := filepath.Join(dir, "refs", filepath.FromSlash(revision))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temp := filepath.Join(dir, fmt.Sprintf(".godflash-ref-%016x", rand.Uint64()))
	err := os.WriteFile(temp, []byte(commit), 0o644)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}
