package openai_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/openai"
	"github.com/godflash/godflash/mlx"
)

// loadTime is how long TestLoad runs; GODFLASH_LOAD, such as 2m, sets another.
func loadTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("GODFLASH_LOAD")
	if text == "" {
		return 6 * time.Second
	}
	d, err := time.ParseDuration(text)
	require.NoError(t, err)
	return d
}

// handles is the number of open files of this process, 0 where that cannot be
// told.
func handles() int {
	names, _ := os.ReadDir("/proc/self/fd")
	return len(names)
}

// 64 clients on one engine, a third of which drop out at random moments: no
// answer but 200 and 429, never more under way than the queue allows, and
// afterwards as many goroutines, handles, arrays and bytes as before, and the
// golden answer.
func TestLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	lib, err := mlx.Open(&mlx.Options{Device: mlx.DeviceCPU})
	require.NoError(t, err)
	defer func() { require.NoError(t, lib.Close()) }()
	engine, err := dflash.Open(t.Context(), "../../testdata/tiny-qwen3.5", &dflash.Options{Library: lib, PrefixCacheBytes: -1})
	require.NoError(t, err)
	defer func() { require.NoError(t, engine.Close()) }()
	const parallel, queue, clients = 4, 40, 64
	w := serve(t, engine, openai.Options{Parallel: parallel, MaxQueue: queue})

	golden := func() {
		a := w.post(chatPath, object{"messages": user(known), "temperature": 0, "reasoning_effort": "none"})
		require.Equal(t, 200, a.status, a.text)
		require.Equal(t, knownReply, at(t, a.json(t), "choices", 0, "message", "content"))
	}
	measure := func() (arrays int64, m mlx.Memory, goroutines, files int) {
		w.client.CloseIdleConnections()
		eventually(t, "nothing is under way", func() bool { return w.handler.Status() == openai.Status{} })
		require.NoError(t, lib.ClearCache(t.Context()))
		m, err := lib.Memory(t.Context())
		require.NoError(t, err)
		goroutines = runtime.NumGoroutine()
		for range 100 { // connections end in goroutines of their own
			time.Sleep(5 * time.Millisecond)
			if n := runtime.NumGoroutine(); n < goroutines {
				goroutines = n
			}
		}
		return lib.LiveArrays(), m, goroutines, handles()
	}
	golden()
	arrays, before, goroutines, files := measure()

	ctx, stop := context.WithTimeout(t.Context(), loadTime(t))
	defer stop()
	var ok, full, gone, most, tooMany atomic.Int64
	var failure atomic.Value
	var group sync.WaitGroup
	for i := range clients {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			client := &http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for ctx.Err() == nil {
				switch status, err := oneRequest(ctx, client, w.URL, rng, i%3 == 0); {
				case err != nil:
					gone.Add(1)
				case status == 200:
					ok.Add(1)
				case status == 429:
					full.Add(1)
					time.Sleep(time.Duration(10+rng.IntN(50)) * time.Millisecond)
				default:
					failure.Store(fmt.Sprintf("status %d", status))
				}
			}
		})
	}
	group.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			s := w.handler.Status()
			most.Store(max(most.Load(), int64(s.Running+s.Waiting)))
			if s.Running > parallel || s.Waiting > queue+parallel {
				tooMany.Add(1)
			}
		}
	})
	group.Wait()
	t.Logf("%d complete, %d refused, %d gone, at most %d at once", ok.Load(), full.Load(), gone.Load(), most.Load())
	require.Nil(t, failure.Load())
	require.NotContains(t, w.log.String(), "status=5", "nothing failed inside")
	require.Zero(t, tooMany.Load())
	require.Positive(t, ok.Load())
	require.Positive(t, full.Load(), "the queue was full at times")
	require.Positive(t, gone.Load())
	require.Greater(t, most.Load(), int64(parallel))

	golden()
	arraysAfter, after, goroutinesAfter, filesAfter := measure()
	require.Equal(t, arrays, arraysAfter)
	require.Equal(t, before.Active, after.Active)
	require.LessOrEqual(t, goroutinesAfter, goroutines)
	require.LessOrEqual(t, filesAfter, files)
	// Weights and the states of four sessions at most.
	require.Less(t, after.Peak, before.Active+1<<30)
}

// oneRequest asks something, and, where the client is one that drops out, goes
// away after a random time.
func oneRequest(ctx context.Context, client *http.Client, url string, rng *rand.Rand, drops bool) (status int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if drops {
		time.AfterFunc(time.Duration(rng.IntN(300))*time.Millisecond, cancel)
	}
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":"%s"}],"stream":%t,"max_tokens":%d,"seed":%d,"temperature":%d,"godflash":{"no_draft":%t}}`,
		strings.Repeat("word ", rng.IntN(40)), rng.IntN(2) == 0, 1+rng.IntN(20), rng.IntN(100), rng.IntN(2), rng.IntN(4) == 0)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+chatPath, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return 0, err
	case resp.StatusCode == 200 && strings.Contains(string(text), `"error"`):
		return 500, nil
	}
	return resp.StatusCode, nil
}
