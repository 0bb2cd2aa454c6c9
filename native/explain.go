package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"syscall"

	"github.com/godflash/godflash/internal/dist"
)

var errNoSpace = errors.New("no space left")

// What pip, cargo and compilers say when the cause lies outside of them.
var (
	saysNoSpace = regexp.MustCompile(`(?i)no space left on device|disk quota exceeded|not enough (disk )?space`)
	saysBadHash = regexp.MustCompile(`(?i)do not match the hashes|failed to verify the checksum|checksum (for|of) .* (changed|mismatch)|hash mismatch`)
	saysNetwork = regexp.MustCompile(`(?i)name or service not known|temporary failure in name resolution|could ?n[o']t resolve|` +
		`failed to establish a new connection|max retries exceeded|connection (refused|reset|aborted|broken)|` +
		`network is unreachable|no route to host|time(d)? ?out|proxyerror|cannot connect to proxy|` +
		`sslerror|certificate verify failed|ssl connect error|could ?n[o']t connect|spurious network error|network failure|` +
		`incompleteread|incomplete download|unexpected eof|http error|failed to (download|fetch|get successful)|` +
		`getting credentials|unable to update registry|server returned http|got 5\d\d`)
	// pip's closing words when it got no list of versions at all.
	saysNothingFound = regexp.MustCompile(`(?i)\(from versions: none\)|no matching distribution`)
)

// fetchError is a failure to get pinned files from outside.
type fetchError struct {
	what string // in the plural
	err  error
}

func (e *fetchError) Error() string { return fmt.Sprintf("%s could not be fetched: %v", e.what, e.err) }
func (e *fetchError) Unwrap() error { return e.err }

// retry is what pip puts before the reason when it tries again.
var retry = regexp.MustCompile(`^(WARNING: Retrying .* after connection broken by |warning: spurious network error \(.*?\): )`)

// explain turns an error into the message for the user: what happened, where,
// and what to do. Programs' last lines and the place of the log are added.
func (in *installation) explain(err error) error {
	var failed *commandError
	output := ""
	if errors.As(err, &failed) {
		output = string(failed.output)
	}
	switch {
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, errNoSpace), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), saysNoSpace.MatchString(output):
		message := fmt.Sprintf("no space left in %s: installing needs %d MB there; make room or set %s to a folder on another disk",
			in.root, spaceNeeded[in.backend]>>20, dist.RootEnv)
		if detail := telling(output, saysNoSpace); detail != "" {
			message += "\n        " + detail
		} else {
			message += fmt.Sprintf(" (%v)", err)
		}
		return errors.New(message)
	case failed == nil && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOTDIR)):
		return fmt.Errorf("cannot write in %s: %w; set %s to a folder that you may write in", in.root, err, dist.RootEnv)
	case failed == nil:
		return err
	}
	message := err.Error()
	var fetch *fetchError
	if errors.As(err, &fetch) {
		const again = "then run the same command again"
		switch {
		case saysBadHash.MatchString(output):
			message = fmt.Sprintf("%s were downloaded, but do not have the pinned SHA-256 and are not used: %s; %s, and if it stays so look at the proxy or mirror in between",
				fetch.what, telling(output, saysBadHash), strings.TrimPrefix(again, "then "))
		case saysNetwork.MatchString(output):
			message = fmt.Sprintf("%s could not be fetched: %s; check the network or proxy, %s", fetch.what, telling(output, saysNetwork), again)
		case saysNothingFound.MatchString(output):
			message = fmt.Sprintf("%s could not be fetched: %s; check the network or proxy and which package index pip is set to, %s", fetch.what, telling(output, saysNothingFound), again)
		}
	}
	for _, line := range failed.lines(12) {
		message += "\n    | " + line
	}
	return fmt.Errorf("%s\n        everything that the programs printed is in %s", message, in.logPath)
}

// telling returns the first line that matches, shortened.
func telling(output string, pattern *regexp.Regexp) string {
	for line := range strings.Lines(output) {
		if pattern.MatchString(line) {
			line = retry.ReplaceAllString(strings.TrimSpace(line), "")
			if r := []rune(line); len(r) > 300 {
				line = string(r[:300]) + "…"
			}
			return line
		}
	}
	return ""
}
