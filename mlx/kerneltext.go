package mlx

import "strings"

// percentMacros and withoutPercent keep percent signs out of the kernels' text.
// A compiler's message quotes lines of it, and mlx-c takes error messages as
// printf formats.
const percentMacros = "#define GF_MOD %\n#define GF_MOD_ASSIGN %=\n"

func withoutPercent(src string) string {
	if !strings.Contains(src, "%") {
		return src
	}
	var b strings.Builder
	var quote byte
	for i := 0; i < len(src); i++ {
		c := src[i]
		if quote == 0 && (strings.HasPrefix(src[i:], "//") || strings.HasPrefix(src[i:], "/*")) {
			end := "\n"
			if src[i+1] == '*' {
				end = "*/"
			}
			n := len(src) - i
			if k := strings.Index(src[i+2:], end); k >= 0 {
				n = 2 + k + len(end)
			}
			b.WriteString(strings.ReplaceAll(src[i:i+n], "%", "/"))
			i += n - 1
			continue
		}
		switch {
		case quote != 0 && c == '\\' && i+1 < len(src):
			b.WriteByte(c)
			i++
			c = src[i]
		case quote != 0 && (c == quote || c == '\n'):
			quote = 0
		case quote != 0:
		case c == '"' || c == '\'':
			quote = c
		case c == '%' && i+1 < len(src) && src[i+1] == '=':
			b.WriteString(" GF_MOD_ASSIGN ")
			i++
			continue
		case c == '%':
			b.WriteString(" GF_MOD ")
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}
