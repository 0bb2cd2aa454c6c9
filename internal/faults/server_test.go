package faults

func init() { planted = append(planted, server...) }

// server are faults of the API over HTTP. Their tests need no model.
var server = []fault{
	{
		"server: the generation goes on when the client left", "dflash/openai/handler.go",
		"context.WithCancelCause(r.Context())", "context.WithCancelCause(context.WithoutCancel(r.Context()))",
		"./dflash/openai", "TestClientGone",
	},
	{
		"server: a place in the queue is not given back", "dflash/openai/run.go",
		"	defer c.h.queue.leave(name)\n", "",
		"./dflash/openai", "TestQueueFull",
	},
	{
		"server: first come, first served", "dflash/openai/queue.go",
		"if q.clients[w.client].last < q.clients[q.waiting[next].client].last {", "if q.clients[w.client].last < 0 {",
		"./dflash/openai", "TestFairTurns",
	},
	{
		"server: a slot that came too late is lost", "dflash/openai/queue.go",
		"	q.free++ // the slot came at the same moment\n", "",
		"./dflash/openai", "TestGoneWhileWaiting",
	},
	{
		"server: no comments while the prompt is run", "dflash/openai/run.go",
		"				s.comment(\"keep-alive\")\n", "",
		"./dflash/openai", "TestKeepAlive",
	},
	{
		"server: a stream's header waits for the first token", "dflash/openai/run.go",
		"			case <-grace:\n				s.begin(out)\n", "			case <-grace:\n",
		"./dflash/openai", "TestKeepAlive",
	},
	{
		"server: a stream that failed ends like one that did not", "dflash/openai/chat.go",
		"	s.event(\"\", e.body(formOpenAI, s.call.id))\n", "	s.event(\"\", e.body(formOpenAI, s.call.id))\n	s.data(\"\", []byte(\"[DONE]\"))\n",
		"./dflash/openai", "TestFailureInside",
	},
	{
		"server: an empty reply for a failure", "dflash/openai/run.go",
		"		case e.err != nil && r.finish == \"\": // what was cut off on purpose has its error, too\n			failure = e.err\n",
		"		case e.err != nil && r.finish == \"\":\n			r.finish = dflash.FinishStop\n",
		"./dflash/openai", "TestFailureInside|TestEngineErrors",
	},
	{
		"server: what lies inside is told to the client", "dflash/openai/errors.go",
		"		return \"Something went wrong inside the server; its log has the cause under \" + id + \".\"\n", "		return e.Error()\n",
		"./dflash/openai", "TestFailureInside|TestEngineErrors",
	},
	{
		"server: whoever does not read is waited for", "dflash/openai/stream.go",
		"SetWriteDeadline(time.Now().Add(c.h.opts.WriteTimeout))", "SetWriteDeadline(time.Now().Add(time.Hour))",
		"./dflash/openai", "TestSlowReader",
	},
	{
		"server: a body of any size", "dflash/openai/decode.go",
		"io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, limit))", "io.ReadAll(c.r.Body)",
		"./dflash/openai", "TestHostileBodies",
	},
	{
		"server: usage on a chunk with choices", "dflash/openai/chat.go",
		"u.Choices, u.Usage = []chatChoice{}, makeUsage(&r.stats)", "u.Choices, u.Usage = last.Choices, makeUsage(&r.stats)",
		"./dflash/openai", "TestChatStream",
	},
	{
		"server: log probabilities of tokens without text are lost", "dflash/openai/chat.go",
		"	o.pending = append(o.pending, p.logprobs...)\n", "	o.pending = p.logprobs\n",
		"./dflash/openai", "TestLogprobs",
	},
	{
		"server: a call that is none ends as one", "dflash/openai/reply.go",
		"func(p *part) bool { return p.end == chat.CallDone })", "func(p *part) bool { return true })",
		"./dflash/openai", "TestBrokenCall|TestCallCut",
	},
	{
		"server: system messages always move to the front", "dflash/openai/run.go",
		"if errors.As(err, &refused) && laterSystem(j.request.Messages) {", "if errors.As(err, &refused) || laterSystem(j.request.Messages) {",
		"./dflash/openai", "TestSystemAnywhere",
	},
	{
		"server: a key's beginning is enough", "dflash/openai/access.go",
		"return subtle.ConstantTimeCompare(got[:], want[:]) == 1", "return subtle.ConstantTimeCompare(got[:], want[:]) == 1 || key != \"\" && strings.HasPrefix(h.opts.APIKey, key)",
		"./dflash/openai", "TestAPIKey",
	},
	{
		"server: pages from anywhere", "dflash/openai/access.go",
		"	if !h.allowed(origin, c.r.Host) {\n", "	if false && !h.allowed(origin, c.r.Host) {\n",
		"./dflash/openai", "TestCrossOrigin",
	},
	{
		"server: a parameter is taken and ignored", "dflash/openai/request.go",
		"	p.unless(\"min_tokens\", \"\", \"0\")\n", "",
		"./dflash/openai", "TestParameters",
	},
	{
		"server: healthy while it stands still", "dflash/openai/health.go",
		"h.health.stalled(time.Now()) > h.opts.Stall", "h.health.stalled(time.Now()) > time.Hour",
		"./dflash/openai", "TestHealth",
	},
}
