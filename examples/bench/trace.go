package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// span is one event of Chrome's trace format (ph "X"): times in µs.
type span struct {
	Name     string  `json:"name"`
	Phase    string  `json:"ph"`
	Start    float64 `json:"ts"`
	Duration float64 `json:"dur"`
	Process  int     `json:"pid"`
	Thread   int     `json:"tid"`
}

// trace lists what the host did for the cycles of a run: their graphs, handing
// them over, and waiting for results. Where cycles are in flight the wait for one
// lies after the next one's hand-over.
func trace(t timed) []span {
	if len(t.cycles) == 0 {
		return nil
	}
	zero := t.cycles[0].Began
	micro := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	var out []span
	add := func(name string, from time.Time, took time.Duration) {
		out = append(out, span{name, "X", micro(from.Sub(zero)), micro(took), 1, 1})
	}
	for i, c := range t.cycles {
		add(fmt.Sprintf("graph of cycle %d", i), c.Began, c.Build)
		if c.Dispatch > 0 {
			add(fmt.Sprintf("hand cycle %d over", i), c.Began.Add(c.Build), c.Dispatch)
		}
		if i < len(t.reads) {
			add(fmt.Sprintf("read cycle %d", i), t.reads[i].Began, t.reads[i].Ended.Sub(t.reads[i].Began))
		}
	}
	return out
}

func writeTrace(path string, t timed) error {
	text, err := json.Marshal(map[string]any{"traceEvents": trace(t), "displayTimeUnit": "ms"})
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
