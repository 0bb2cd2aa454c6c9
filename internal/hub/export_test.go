package hub

import (
	"context"
	"time"
)

// SetSleep replaces waiting.
func (c *Client) SetSleep(f func(context.Context, time.Duration) error) { c.sleep = f }

// SetSymlink replaces the making of symbolic links.
func (c *Client) SetSymlink(f func(target, link string) error) { c.symlink = f }

// SetStall replaces the time without a byte after which a request is given up.
func (c *Client) SetStall(d time.Duration) { c.stall = d }
