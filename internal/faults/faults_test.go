// Package faults plants known faults in the source, one at a time, and asserts
// that the tests which shall catch them fail: a gate that cannot fail guards
// nothing. The files on disk are not touched; the go command's overlay shows
// the compiler a changed copy.
//
// It rebuilds and reruns tests for each fault, so it is asked for by name:
// make faults.
package faults

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fault is one change: in file, old (which must stand there exactly once)
// becomes new; then some test of pkg that matches run must fail.
type fault struct {
	name, file, old, new, pkg, run string
}

// planted are those of the models, decoding and programs.
var planted = []fault{
	{
		"taps off by one", "qwen/model.go",
		"			if t == layer {\n", "			if t == layer+1 {\n",
		"./qwen", "TestGoldenTaps",
	},
	{
		"taps off by one, seen in the drafts", "qwen/model.go",
		"			if t == layer {\n", "			if t == layer+1 {\n",
		"./dflash", "TestGoldenDrafts/tiny-qwen3$",
	},
	{
		"a norm's one added twice", "qwen/weights.go",
		"		normOffset = 1\n", "		normOffset = 2\n",
		"./qwen", "TestGoldenTaps/tiny-qwen3.5",
	},
	{
		"the drafter's context includes the anchor", "dflash/cycle.go",
		"if err := d.commitRows(s, b.taps, n); err != nil {", "if err := d.commitRows(s, b.taps, n); err != nil || d.drafting && rows > n && d.drafter.Append(s, d.context, b.taps, 1) != nil {",
		"./dflash", "TestReference/tiny-qwen3$/block_16|TestMaxTokens",
	},
	{
		"block mask causal where it should be full", "dflash/draftconfig.go",
		"return c.LayerTypes[layer] == SlidingAttention", "return true",
		"./dflash", "TestGoldenDrafter|TestReference/tiny-qwen3$/block_16",
	},
	{
		"rejected rows stay in the recurrent state", "qwen/gateddelta.go",
		"case n.Exact() && n.N == b.rows:", "case n.Exact():",
		"./dflash", "TestRollbackRounds/gated_delta",
	},
	{
		"a recorded pass keeps the position that it was recorded at", "qwen/recorded.go",
		"at: nn.Position{Bound: bound, Array: at},", "at: nn.Position{Bound: bound, Array: s.Minimum(at, s.Full(float64(bound-9), mlx.Int32, 1))},",
		"./qwen", "TestRecorded",
	},
	{
		"a recorded commit takes the states of another layer", "qwen/recorded.go",
		"r.next.conv, r.next.state, out = out[0], r.block.after, out[1:]", "r.next.conv, r.next.state, out = out[0], out[0], out[1:]",
		"./qwen", "TestRecorded",
	},
	{
		"recorded drafts write to the buffers of the recording", "dflash/draftrecorded.go",
		"	c.wrote(out[n:])\n", "	c.wrote(buffers)\n",
		"./dflash", "TestPipelined$/tiny-qwen3$",
	},
	{
		"layers of a prompt are freed with the taps that they gave", "qwen/model.go",
		"slices.Concat(next, out.Taps, c.written(), ", "slices.Concat(next, c.written(), ",
		"./internal/synthetic", "TestComposed",
	},
	{
		"a drafter's window that has moved is read from its old place", "dflash/drafter.go",
		"Base: kv.Origin(s)}, kernels.See", "Base: mlx.Array{}}, kernels.See",
		"./internal/synthetic", "TestComposed",
	},
	{
		"a chain's draft context is one layer's", "dflash/draftchain.go",
		"d.layers[i].kv.Chain(", "d.layers[i/2].kv.Chain(",
		"./internal/synthetic", "TestComposed",
	},
	{
		"a draft more than the target chose is accepted", "dflash/accept.go",
		"a.Count = s.Sum(s.CumProd(right, 0), true, 0)", "a.Count = s.Sum(right, true, 0)",
		"./dflash", "TestReference/tiny-qwen3$/block_16",
	},
	{
		"an end of sequence inside a block is overrun", "dflash/session.go",
		"		n = i + 1\n", "		n = max(i+1, len(choices))\n",
		"./dflash", "TestStopInsideBlock",
	},
	{
		"a block passes the budget", "dflash/session.go",
		"	g.next.most = min(g.plan.rows, budget)\n	return d.runCycle(ctx, min(g.next.take(), budget), g.cut)\n", "	g.next.most = g.plan.rows\n	return d.runCycle(ctx, g.next.take(), g.cut)\n",
		"./dflash", "TestMaxTokens",
	},
	{
		"rows that waited for the drafter out of order", "dflash/waiting.go",
		"rows[k] = row[i]", "rows[len(rows)-1-k] = row[i]",
		"./dflash", "TestWaitingTaps/tiny-qwen3$",
	},
	{
		"exploring has no bound", "internal/controller/controller.go",
		"r.c.spare -= spent", "r.c.spare += spent",
		"./internal/controller", "TestStationary/noise",
	},
	{
		"what a model predicted does not count", "internal/controller/acceptance.go",
		"m.weight[k] *= math.Max(p, 1e-9)", "m.weight[k] *= math.Max(p, 1e9)",
		"./internal/controller", "TestChange",
	},
	{
		"what kind a text was says nothing of the next", "internal/controller/controller.go",
		"r.c.texts[kind] = max(r.c.texts[kind]+p-r.told[kind], firstTexts[kind])", "_ = p",
		"./internal/controller", "TestMixedTexts",
	},
	{
		"after a plain step nobody begins with a block", "internal/controller/controller.go",
		"case !c.drafted():", "case !c.drafted() && !c.known(1):",
		"./dflash", "TestControllerBegins",
	},
	{
		"the way from a plain step to two rows goes on", "internal/controller/costs.go",
		"for k := i - 1; k > 0; k-- {", "for k := i - 1; k >= 0; k-- {",
		"./internal/controller", "TestBeginsShort",
	},
	{
		"a cold first block is taken for what blocks cost", "internal/controller/costs.go",
		"cold := rows > 1 && !c.warm", "cold := rows < 1",
		"./internal/controller", "TestColdBegin",
	},
	{
		"costs that are not measured stay behind", "internal/controller/costs.go",
		"if k == i {", "if k >= 0 {",
		"./internal/controller", "TestDrift",
	},
	{
		"the pending block is never freed", "qwen/gateddelta.go",
		"	r.block.each(func(a *mlx.Array) { owner.Free(*a) })\n	r.block = deltaBlock{}\n", "	r.block = deltaBlock{}\n",
		"./dflash", "TestNoLeak",
	},
	{
		"rows before a block are not searched for NaN", "dflash/nonfinite.go",
		"where == \"\" && len(before) > 0", "where == \"\" && len(before) < 0",
		"./dflash", "TestNonFiniteBefore",
	},
	{
		"a long word is given up a token too soon", "qwen/tokenizer/tokenizer.go",
		"(n-1)/e.bpe.longest >= left {", "(n-1)/e.bpe.longest >= left-1 {",
		"./qwen/tokenizer", "TestEncodeUpTo",
	},
	{
		"greedy rejection fixes the blocks", "dflash/request.go",
		"r.Sampling.Rejection && !r.Sampling.Greedy()", "r.Sampling.Rejection",
		"./dflash", "TestRejectionLimits",
	},
	{
		"special tokens in a message count", "dflash/request.go",
		"if segment.Literal {", "if false {",
		"./dflash", "TestControlTokensInMessages",
	},
	{
		"a refused draft stays in the penalties' counts", "dflash/scores.go",
		"weights := s.AsType(kept, mlx.Float32)", "weights := s.OnesLike(s.AsType(kept, mlx.Float32))",
		"./dflash", "TestPenaltiesOracle",
	},
	{
		"a row's penalties do not see the drafts before it", "dflash/scores.go",
		"s.CumSum(s.AsType(is, mlx.Float32), 0)", "s.SliceAxis(s.AsType(is, mlx.Float32), 0, 0, 1)",
		"./dflash", "TestPenaltiesOracle",
	},
	{
		"a mask is forgotten", "dflash/scores.go",
		"	if allowed.Valid() {\n		x =", "	if false {\n		x =",
		"./dflash", "TestConstraint$",
	},
	{
		"a refused draft's successor is drawn from the whole distribution", "dflash/rejection.go",
		"s.Maximum(s.Sub(own, p.probs), zero)", "s.Maximum(own, zero)",
		"./dflash", "TestDistribution/plain,_rejection_true",
	},
	{
		"a draft that a mask forbids is forgotten before it is refused", "dflash/cycle.go",
		"drafts = kept //", "drafts = kept - 1 //",
		"./dflash", "TestDistribution/masks",
	},
	{
		"the most probable token counts twice in its logarithm", "dflash/logprobs.go",
		"s.PutAlong(s.Exp(x), s.Argmax(x, -1, true), s.Scalar(0, mlx.Float32), 1)", "s.Exp(x)",
		"./dflash", "TestLogProbsGolden/tiny-qwen3$",
	},
	{
		"text: what a stop text held back is lost at the end", "dflash/text.go",
		"return t.stops.Flush() + t.stream.Flush()", "return t.stream.Flush()",
		"./dflash", "TestStopPermutation",
	},
	{
		"text: a stop text inside a block is overrun", "dflash/session.go",
		"end > 0 && end < n", "end > n",
		"./dflash", "TestStopTexts",
	},
	{
		"text: half a letter is flushed at each token", "dflash/session.go",
		"		t.Text = piece\n", "		t.Text = piece + g.text.stream.Flush()\n",
		"./dflash", "TestLettersOfManyTokens",
	},
	{
		"the state before forced tokens is remembered for another position", "dflash/forced.go",
		"d.clearMarks(); d.setMark(before, at)", "d.clearMarks(); d.setMark(before, at+1)",
		"./dflash", "TestBreakInsideForced/gated_delta",
	},
	{
		"a constraint outlives its request", "dflash/session.go",
		"	d.constraint = g.plan.constraint\n", "	if g.plan.constraint != nil {\n		d.constraint = g.plan.constraint\n	}\n",
		"./dflash", "TestFeatures/dense",
	},
	{
		"penalties do not see what was reused", "dflash/past.go",
		"		d.scorer.see(s, d.past.rows)\n", "		d.scorer.begin(s)\n",
		"./dflash", "TestFeatures/dense|TestReuseScores/dense",
	},
	{
		"a NaN of a forced row is handed out as its logarithm", "dflash/forced.go",
		"checked(s, logits, idArray(s, ids))", "idArray(s, ids)",
		"./dflash", "TestNonFiniteForced",
	},
	{
		"a prompt is split nowhere near the reply that it asks for", "dflash/request.go",
		"		if e.tok.IsSpecial(ids[i]) {\n			return i\n", "		if false {\n			return i\n",
		"./dflash", "TestThoughtsLeftOut",
	},
	{
		"what follows the end in its block is looked at", "dflash/cycle.go",
		"		o.tokens = o.tokens[:n]\n", "",
		"./dflash", "TestConstraintEndsInsideBlock",
	},
	{
		"an error's text names folders", "dflash/openai/errors.go",
		"if hide[0] != \"\" {", "if hide[0] == \"/\" {",
		"./dflash/openai", "TestNoFolders",
	},
	{
		"text: of two stop texts that end together the shorter counts", "internal/stoptext/stoptext.go",
		"if s.nodes[c].ends < 0 {", "if s.nodes[s.nodes[c].fail].ends >= 0 {",
		"./internal/stoptext", "TestStops|TestAny",
	},
	{
		"text: what is held back is copied for each piece", "internal/stoptext/stoptext.go",
		"		return a[:n]\n", "		return (a + b)[:n]\n",
		"./internal/stoptext", "TestLinear",
	},
	{
		"text: a block passes the thought's budget", "dflash/forced.go",
		"left = min(left, g.plan.thought-g.stats.ReasoningTokens)", "left = min(left, g.plan.thought-g.stats.ReasoningTokens+1)",
		"./dflash", "TestThinkingBudget$",
	},
	{
		"text: the end of a closed thought is not run", "dflash/forced.go",
		"run := append([]int{d.anchor}, ids[:len(ids)-1]...)", "run := []int{d.anchor}",
		"./dflash", "TestThinkingBudgetOfAPair|TestContinueAfterText",
	},
	{
		"text: forced rows are not remembered", "dflash/forced.go",
		"		d.past.rows = append(d.past.rows, run...)\n", "",
		"./dflash", "TestContinueAfterText",
	},
	{
		"text: a stop text matches forced tokens", "dflash/text.go",
		"	if forced {\n", "	if false {\n",
		"./dflash", "TestThinkingBudget$",
	},
	{
		"text: any </parameter> ends a value", "qwen/chat/callxml.go",
		"			x.state = xmlClosed\n", "			s.xmlEnd()\n			x.state, x.held = xmlBetween, nil\n			return more\n",
		"./qwen/chat", "TestSplitterRoundTrip",
	},
	{
		"text: a call that breaks off is lost", "qwen/chat/call.go",
		"	s.emit(DeltaContent, s.call.raw...)\n", "",
		"./qwen/chat", "TestSplitter$",
	},
	{
		"reuse: a recurrent state stays where it was", "qwen/sequence.go",
		"	c.setStates(states)\n	c.at = nn.At(n)\n	return c.owner.Err()\n", "	c.at = nn.At(n)\n	return c.owner.Err()\n",
		"./qwen", "TestTrimAndRestore/gated_delta",
	},
	{
		"reuse: rows that a window dropped are taken for there", "dflash/draftcontext.go",
		"		if kv.Base() > c.needs(i, n) {\n			return false\n", "		if kv.Base() > c.needs(i, n) && n < 0 {\n			return false\n",
		"./dflash", "TestWindowGoesBack",
	},
	{
		"reuse: a full hit leaves nothing to run", "dflash/past.go",
		"wanted := ids[:len(ids)-1]", "wanted := ids",
		"./dflash", "TestPrefixCache$",
	},
	{
		"reuse: penalties forget what was known", "dflash/past.go",
		"		d.scorer.see(s, d.past.rows)\n", "",
		"./dflash", "TestReuseScores",
	},
	{
		"reuse: no state is kept before a block that is not read to its end", "dflash/cycle.go",
		"			before = d.mark()\n", "",
		"./dflash", "TestContinueInsideBlock/tiny-qwen3.5$",
	},
	{
		"reuse: nor before one in flight", "dflash/pipeline.go",
		"before := d.mark()", "before := point{}",
		"./dflash", "TestContinueInsideBlock/tiny-qwen3.5$",
	},
	{
		"prefix cache: a state is taken up in the middle of an entry", "dflash/prefix.go",
		"(at < last.end() || last.states == nil)", "(last.states == nil)",
		"./dflash", "TestPrefixCache$/gated_delta",
	},
	{
		"prefix cache: no limit", "dflash/prefix.go",
		"for c.stats.Bytes+bytes > c.stats.Limit {", "for false {",
		"./dflash", "TestPrefixCacheLimit",
	},
	{
		"prefix cache: what is dropped is not freed", "dflash/prefix.go",
		"		c.owner.Free(list...)\n", "		_ = list\n",
		"./dflash", "TestPrefixCacheLimit",
	},
	{
		"snapshot: the checksum is not compared", "dflash/snapshot.go",
		"if !bytes.Equal(want, got) {", "if len(want) != len(got) || bytes.Equal(nil, want) {",
		"./dflash", "TestSnapshotRefused",
	},
	{
		"snapshot: another model's is taken", "dflash/snapshot.go",
		"case h.Target != e.identity[0]:", "case len(h.Target) != len(e.identity[0]):",
		"./dflash", "TestSnapshotRefused",
	},
	{
		"a long prompt runs in one pass", "dflash/prefill.go",
		"end = min(start+d.chunk, len(ids))", "end = len(ids)",
		"./dflash", "TestLongPrompt",
	},
	{
		"experts one by one: packed words are read as numbers", "internal/weights/quant.go",
		"	o, ok := r.plan[names[0]]\n	if !ok {", "	o, ok := r.plan[names[0]]\n	if !ok || o.Bits > 0 {",
		"./qwen", "TestQuantizedExperts",
	},
	{
		"a module's own mode does not count", "internal/weights/quant.go",
		"			said = own\n", "			said.Bits = own.Bits\n",
		"./qwen", "TestQuantizedModes",
	},
	{
		"what is wrong with the tokenizer hides the rest", "dflash/check.go",
		"	wrong.Add(e.readText(f.Target.Dir, cfg))\n", "	if err := e.readText(f.Target.Dir, cfg); err != nil {\n		return nil, nil, &ModelError{Dir: f.Target.Dir, Problems: []error{err}}\n	}\n",
		"./dflash", "TestEverythingWrong",
	},
	{
		"scales are widened on the CPU", "internal/weights/quant.go",
		"	if r.Kernels != nil || r.s.Library()", "	if r.Kernels == nil || r.s.Library()",
		"./qwen", "TestLoadMemoryQuantized",
	},
	{
		"an index leads out of the folder", "internal/safetensors/checkpoint.go",
		"!filepath.IsLocal(file) || ", "",
		"./internal/safetensors", "TestOpenErrors",
	},
	{
		"another model's drafter beside the model is taken", "internal/resolve/resolve.go",
		"filepath.Join(beside, repo.Name)", "filepath.Join(beside, \"Qwen3.5-4B-DFlash\")",
		"./internal/resolve", "TestDrafterBeside",
	},
	{
		"the benchmark calls different texts equal", "examples/bench/pairs.go",
		"res.Equal = at < 0 && res.Plain.Steady && res.Drafted.Steady", "res.Equal = true",
		"./examples/bench", "TestResult",
	},
	{
		"the benchmark scores a difference without the common text", "examples/bench/gap.go",
		"text[:d.At]...", "text[:0]...",
		"./examples/bench", "TestGap",
	},
	{
		"the bound of a cycle leaves out the drafter's head", "internal/synthetic/work.go",
		"w.Cycle = 2*head + block", "w.Cycle = head + block",
		"./internal/synthetic", "TestWork",
	},
	{
		"an acceptance that is replayed lags a cycle", "internal/probe/probe.go",
		"p.Accepted[p.at%len(p.Accepted)]", "p.Accepted[max(0, p.at-1)%len(p.Accepted)]",
		"./dflash", "TestProbe",
	},
	{
		"all rows of a block have the first row's mask", "dflash/constrained.go",
		"next, ok := f.machine.Advance(state, drafts[i])", "next, ok := state, true",
		"./dflash", "TestSchemaRandomWeights/dense",
	},
	{
		"a mask forgets what follows a rule's end", "internal/grammar/mask.go",
		"if t.left && leaving != nil && v.after[i] > i+1 {", "if t.left && leaving != nil && v.after[i] > v.after[at] {",
		"./internal/grammar", "TestMaskIsStep",
	},
	{
		"a mask leads where nothing can be completed", "internal/grammar/nodes.go",
		"if live[e.to] {", "if true {",
		"./internal/grammar", "TestNoDeadEnds",
	},
}

// The faults fit the source: this much is tested always.
func TestFaultsFit(t *testing.T) {
	for _, f := range slices.Concat(planted, plantedBelow) {
		source, err := os.ReadFile(filepath.Join("..", "..", f.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), f.old); n != 1 {
			t.Errorf("%s: %s holds %q %d times, expected once: bring the fault up to date", f.name, f.file, f.old, n)
		}
	}
}

func TestPlanted(t *testing.T) {
	if os.Getenv("GODFLASH_FAULTS") == "" {
		t.Skip("make faults runs it: each fault rebuilds a package and runs its tests")
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range slices.Concat(planted, plantedBelow) {
		t.Run(f.name, func(t *testing.T) {
			path := filepath.Join(root, f.file)
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), f.old); n != 1 {
				t.Fatalf("%s holds %q %d times, expected once: bring the fault up to date", f.file, f.old, n)
			}
			changed := filepath.Join(t.TempDir(), filepath.Base(f.file))
			if err := os.WriteFile(changed, []byte(strings.Replace(string(source), f.old, f.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
			if err != nil {
				t.Fatal(err)
			}
			list := filepath.Join(t.TempDir(), "overlay.json")
			if err := os.WriteFile(list, overlay, 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("go", "test", "-overlay", list, "-run", f.run, f.pkg)
			cmd.Dir = root
			out, err := cmd.CombinedOutput()
			switch {
			case err == nil:
				t.Fatalf("no test of %s that matches %q noticed:\n%s", f.pkg, f.run, out)
			case strings.Contains(string(out), "[build failed]"), !strings.Contains(string(out), "--- FAIL"):
				t.Fatalf("the fault was not tested:\n%s", out)
			}
			t.Logf("seen:\n%s", firstFailure(string(out)))
		})
	}
}

// firstFailure is the name and the message of the first failing test.
func firstFailure(out string) string {
	lines := strings.Split(out, "\n")
	for i, line := range lines {
		if strings.Contains(line, "--- FAIL") {
			return strings.Join(lines[i:min(i+8, len(lines))], "\n")
		}
	}
	return out
}
