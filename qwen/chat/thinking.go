package chat

import "strings"

// OpensThinking reports whether a rendered prompt ends inside an open <think>
// block, so that the model goes on with its reasoning and never writes the
// opening tag itself. Only the last turn counts: tags in what users wrote do not.
func OpensThinking(rendered string) bool {
	turn := rendered
	if i := strings.LastIndex(turn, "<|im_start|>"); i >= 0 {
		turn = turn[i:]
	}
	if strings.Contains(turn, "<|im_end|>") {
		return false
	}
	return strings.LastIndex(turn, "<think>") > strings.LastIndex(turn, "</think>")
}

// ThinkingEnd closes a thought, as the templates of both families write it.
const ThinkingEnd = "\n</think>\n\n"
