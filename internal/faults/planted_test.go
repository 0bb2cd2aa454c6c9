package faults

// plantedBelow are those of package mlx, the kernels and the parts of networks.
var plantedBelow = []fault{
	{
		"convolution tail one row late", "internal/kernels/deltakeep.go",
		"s.SliceAxis(b.ConvIn, 1, n, n+kept)", "s.SliceAxis(b.ConvIn, 1, n-1, n-1+kept)",
		"./dflash", "TestRollbackRounds/gated_delta",
	},
	{
		"keys are written one row late", "internal/kernels/into.go",
		"(size_t)(position[0] + row -", "(size_t)(position[0] + row + 1 -",
		"./internal/kernels", "TestInto",
	},
	{
		"parts of the keys depend on where a block ends", "internal/kernels/attentiontext.go",
		"first + (part + SPLITS - first % SPLITS) % SPLITS", "first + (part + end) % SPLITS",
		"./internal/kernels", "TestAttentionRowByRow",
	},
	{
		"a chain adds the residual of the wrong place", "internal/nn/chain.go",
		"return f.Down.Chain(s, h, kernels.Around{Residual: x.X,", "return f.Down.Chain(s, h, kernels.Around{Residual: y.X,",
		"./internal/synthetic", "TestComposed",
	},
	{
		"rows are written as if the cache began at position 0", "internal/kernels/into.go",
		"(size_t)(position[0] + row - (BASED ? base[0] : 0))", "(size_t)(position[0] + row)",
		"./internal/kernels", "TestInto",
	},
	{
		"a mark keeps nothing", "mlx/mark.go",
		"&& !holds(keep, s, i) {", "{",
		"./mlx", "TestFreeSince",
	},
	{
		"a chain's last block leaves its counter", "internal/kernels/chaintext.go",
		"    if (last) *c = 0;\n", "",
		"./internal/kernels", "TestChainRowByRow",
	},
	{
		"a dense chain multiplies before its weights are there", "internal/kernels/densetext.go",
		"gf_copies_wait<D - 2>()", "gf_copies_wait<D - 1>()",
		"./internal/kernels", "TestChainRowByRow",
	},
	{
		"a block reads what the other of its pair gives before it is there", "internal/kernels/densetext.go",
		"  gf_arrive();\n  gf_meet();\n}\n", "}\n",
		"./internal/kernels", "TestChainRowByRow",
	},
	{
		"a block gives to the other of its pair before that has begun", "internal/kernels/densetext.go",
		"  gf_meet(); // the other block has begun, and its memory is there\n", "",
		"./internal/kernels", "TestChainRowByRow",
	},
	{
		"a pair's blocks take the same half of the columns of x", "internal/kernels/densetext.go",
		"x + (size_t)g * K + rank * COLUMNS", "x + (size_t)g * K",
		"./internal/kernels", "TestChainRowByRow|TestKernels",
	},
	{
		"a chain reads x while the kernel that writes it may still run", "internal/kernels/chaintext.go",
		"fetch(0);\ngf_wait();\n", "fetch(0);\nif (x[0] == x[0]) gf_wait();\n",
		"./internal/kernels", "TestChainRowByRow",
	},
	{
		"threads without work do not wait for the kernel before", "internal/kernels/densetext.go",
		"gf_wait();\n", "if (tid / 8 < rows) gf_wait();\n",
		"./internal/kernels", "TestChainRowByRow",
	},
	{
		"tiles of an expert begin where those of the one before may end", "internal/kernels/groupedtext.go",
		"const int begin = first / M + bid, end = (first + count) / M + bid + 1;", "const int begin = first / M, end = (first + count) / M + 1;",
		"./internal/kernels", "TestGroupOrder",
	},
	{
		"gates in bfloat16 do not lie by turns with their values", "internal/nn/pack.go",
		"[]*mlx.Array{&p.whole.weight, &q.W, ", "[]*mlx.Array{&q.W, ",
		"./internal/synthetic", "TestComposed",
	},
	{
		"a mixture's ups are read where its gates lie", "internal/kernels/expertstext.go",
		"const size_t u = own ? e : e + HALF;", "const size_t u = e;",
		"./internal/kernels", "TestKernels",
	},
	{
		"a mixture's shared expert has another expert's weight", "internal/kernels/expertstext.go",
		"sum += weights[bid * KS + k]", "sum += weights[bid * KS + k % K]",
		"./internal/kernels", "TestKernels",
	},
	{
		"of equal scores the higher expert is chosen", "internal/kernels/expertstext.go",
		"__reduce_min_sync(0xffffffffu, key == most ? at : E)", "(int)__reduce_max_sync(0xffffffffu, key == most ? at : 0)",
		"./internal/kernels", "TestChoice",
	},
	{
		"a mixture takes the scores in the order of another map", "internal/nn/experts.go",
		"s.Concat(2, scores, m.SharedGate.Forward(s, x))", "s.Concat(2, m.SharedGate.Forward(s, x), scores)",
		"./internal/nn", "TestMoEByKernels",
	},
	{
		"a chained mixture loses the residual stream", "internal/nn/experts.go",
		"Eps: n.Eps, Residual: x.X, Sums", "Eps: n.Eps, Sums",
		"./internal/synthetic", "TestComposed",
	},
	{
		"a mixture's shared expert is added twice", "internal/nn/experts.go",
		"if ok && !m.shape.Shared {", "if ok {",
		"./internal/nn", "TestMoEByKernels",
	},
	{
		"kept rows leave the tail of the whole block", "internal/kernels/deltatext.go",
		"conv_in[(size_t)n * CH + i]", "conv_in[(size_t)rows * CH + i]",
		"./internal/kernels", "TestKernels",
	},
	{
		"a chunk of a prompt forgets its last row's decay", "internal/kernels/chunktext.go",
		"const float last = decay[C - 1];", "const float last = decay[C - 2];",
		"./internal/kernels", "TestChunkKernels",
	},
	{
		"a prompt's state decays twice at a chunk's end", "internal/kernels/chunk.go",
		"s.Add(s.Mul(last, state),", "s.Add(s.Mul(s.Square(last), state),",
		"./internal/kernels", "TestChunks$",
	},
	{
		"rejected rows stay in the attention cache", "internal/nn/position.go",
		"return At(p.Bound + n.N)", "return At(p.Bound + max(n.N, 2))",
		"./dflash", "TestRollbackRounds/dense",
	},
	{
		"replay by a count on the device stops a row late", "internal/kernels/deltaops.go",
		"s.Less(s.Scalar(float64(i), mlx.Int32), count)", "s.LessEqual(s.Scalar(float64(i), mlx.Int32), count)",
		"./dflash", "TestPipelined$/tiny-qwen3.5",
	},
	{
		"the scan kernel runs past the kept rows", "internal/kernels/deltatext.go",
		"n = kept < rows ? kept : rows;", "n = rows;",
		"./internal/kernels", "TestKernels",
	},
	{
		"the 4-bit kernel is a step off", "internal/kernels/chaintext.go",
		"GF_PAIR(-128 * GF_LO(xs", "GF_PAIR(-127 * GF_LO(xs",
		"./internal/kernels", "TestKernels",
	},
	{
		"columns that two warps read are added twice", "internal/kernels/chaintext.go",
		"&& from + u < begin", "&& from + u < 0",
		"./internal/kernels", "TestKernels",
	},
	{
		"a product writes behind its outputs", "internal/kernels/chaintext.go",
		"const int there = m < rows && i + n / 16 < count ? N % 16 == 0 ? 2 : min(max(N - tile * 16 - n % 16, 0), 2) : 0;", "const int there = m < rows && i + n / 16 < count ? 2 : 0;",
		"./internal/kernels", "TestKernels",
	},
	{
		"a stage is asked for into the place of the one that is read", "internal/kernels/chaintext.go",
		"const int ask = i + j + STAGES - 1;", "const int ask = i + j + STAGES;",
		"./internal/kernels", "TestKernels",
	},
	{
		"sums of two tiles do not come round", "internal/kernels/chaintext.go",
		"red + i / 2 % 2 * W * 16 * PAD", "red + i / 2 * W * 16 * PAD",
		"./internal/kernels", "TestKernels",
	},
	{
		"attention asks for a tile before all have read the one in its place", "internal/kernels/attentiontext.go",
		"  __syncthreads();\n  if (tile + (STAGES - 1)", "  if (tile + (STAGES - 1)",
		"./internal/kernels", "TestAttention",
	},
	{
		"a warp forgets a piece of a stage", "internal/kernels/chaintext.go",
		"e < min(u * 2 + 2, GW) * PIECES / GW; e++", "e < min(u * 2 + 2, GW) * PIECES / GW - (u == 0); e++",
		"./internal/kernels", "TestKernels",
	},
	{
		"attention asks for a tile into the place of the one that is read", "internal/kernels/attentiontext.go",
		"fetch(tile + (STAGES - 1) * SPLITS, (slot + STAGES - 1) % STAGES)", "fetch(tile + (STAGES - 1) * SPLITS, slot)",
		"./internal/kernels", "TestAttention",
	},
	{
		"attention takes its first tile for there where the cache ends before", "internal/kernels/attentiontext.go",
		"const bool ahead = WINDOW == 0 && (part + 1) * BK <= capacity;", "const bool ahead = WINDOW == 0;",
		"./internal/kernels", "TestAttention",
	},
	{
		"the attention kernel's window is a key too wide", "internal/kernels/attentiontext.go",
		"key > at + g - WINDOW)", "key >= at + g - WINDOW)",
		"./internal/kernels", "TestAttention",
	},
	{
		"the scan kernel takes another key head", "internal/kernels/deltatext.go",
		"hk = hv / (HV / HK);", "hk = hv - hv / HK * HK;",
		"./internal/kernels", "TestKernels",
	},
	{
		"the later of two equal scores is chosen", "internal/kernels/choicetext.go",
		"if (a > top)", "if (a >= top)",
		"./internal/kernels", "TestLargest",
	},
	{
		"a layer's states are another's", "internal/kernels/deltakeep.go",
		"%s = %s%d;\", name, name, i)", "%s = %s%d;\", name, name, i/2)",
		"./internal/kernels", "TestKernels",
	},
	{
		"a part of a row's attention is left out", "internal/kernels/attentiontext.go",
		"if (share[k] > 0) a += ", "if (share[k] > 0 && warp * Q + k < SPLITS - 1) a += ",
		"./internal/kernels", "TestKernels",
	},
	{
		"attention is given less memory than it uses", "internal/kernels/attention.go",
		"		keys += 32\n", "		keys += 8\n",
		"./internal/kernels", "TestAttention",
	},
	{
		"what was never written is taken for a part of a row's attention", "internal/kernels/attentiontext.go",
		"if (share[k] > 0) a += ", "a += ",
		"./internal/kernels", "TestAttention",
	},
	{
		"a panic in a function passes through MLX", "mlx/function.go",
		"if v := recover(); v != nil {", "if v := any(nil); v != nil {",
		"./mlx", "TestFunctionErrors",
	},
	{
		"a derivative of the wrong shape is handed to MLX", "mlx/function.go",
		"t.check(opCustomVJP, out, shapesOf(in[0]), \"primal\")", "",
		"./mlx", "TestFunctionErrors",
	},
	{
		"a GGUF tensor beyond the end of its file", "mlx/ggufcheck.go",
		"t.offset > g.size-base-t.bytes {", "false {",
		"./mlx", "TestGGUFOffsets",
	},
	{
		"a kernel in a trace is tried with inputs that have no values", "mlx/kernel.go",
		"if s.lib.core.tracing == 0 {", "if true {",
		"./mlx", "TestKernelSamples",
	},
	{
		"On leaves the device", "mlx/stream.go",
		"s.stream, s.device = st.h, st.device", "s.stream = st.h",
		"./mlx", "TestOnSwitchesStreamAndDevice|TestKernelFollowsTheDevice",
	},
	{
		"On leaves the stream", "mlx/stream.go",
		"s.stream, s.device = st.h, st.device", "s.device = st.device",
		"./mlx", "TestOnSwitchesStreamAndDevice",
	},
	{
		"the chosen experts are divided by their sum unasked", "internal/nn/experts.go",
		"	if m.NormTopK {", "	if m.TopK > 0 {",
		"./dflash", "TestQwen3Mixture/two_of_four,_as_they_are",
	},
	{
		"a cached kernel's headers are not part of its key", "native/kernels/nvrtc.c",
		"		gf_sha_string(&p->key, headers[i]);\n", "",
		"./native/kernels", "TestKernelCache/key",
	},
	{
		"a cached kernel's checksum is not compared", "native/kernels/nvrtc.c",
		"memcmp(digest, p->record + size - GF_DIGEST, GF_DIGEST) == 0", "digest[0] + 1 > 0",
		"./native/kernels", "TestKernelCache/damage",
	},
	{
		"a cached kernel's names are freed while they are valid", "native/kernels/nvrtc.c",
		"p->n_options, (const char *const *)p->options);\n	p->answered = 0;\n", "p->n_options, (const char *const *)p->options);\n	gf_forget(p);\n",
		"./native/kernels", "TestKernelCache/more",
	},
	{
		"precompiled headers keep their name", "native/kernels/nvrtc.c",
		"	unlink(path);\n", "",
		"./native/kernels", "TestKernelCache/precompiled",
	},
	{
		"the newest kernels go", "native/kernels/store.h",
		"x->tv_sec < y->tv_sec ? -1 : 1", "x->tv_sec < y->tv_sec ? 1 : -1",
		"./native/kernels", "TestKernelCacheBound",
	},
}
