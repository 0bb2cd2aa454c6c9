package chat

import "strings"

// past is the verdict on the byte after a number, which no byte of its own ends.
const past verdict = bad + 1

// scanner checks one JSON value (RFC 8259), byte by byte. The zero value waits
// for its first byte, which is not white space.
type scanner struct {
	state scanState
	stack []byte // the open { and [
	key   bool   // the string is a member's name
	rest  string // of a literal
	hex   int    // digits that a \u still wants
}

type scanState int

const (
	scanValue       scanState = iota // a value
	scanArrayFirst                   // a value or ]
	scanObjectFirst                  // a name or }
	scanName                         // a name, after a comma
	scanColon
	scanComma // a comma, or the end of the array or object
	scanString
	scanEscape
	scanHex
	scanLiteral
	// Numbers. Those that a number may end in come last.
	scanMinus
	scanPoint
	scanExponent // e
	scanSign     // e+
	scanZero
	scanInteger
	scanFraction
	scanDigits // of the exponent
)

func (c *scanner) step(b byte) verdict {
	switch c.state {
	case scanValue, scanArrayFirst, scanObjectFirst, scanName, scanColon, scanComma:
		if isSpace(b) {
			return more
		}
	}
	switch c.state {
	case scanArrayFirst:
		if b == ']' {
			return c.pop()
		}
		return c.value(b)
	case scanValue:
		return c.value(b)
	case scanObjectFirst, scanName:
		if b == '}' && c.state == scanObjectFirst {
			return c.pop()
		}
		c.state, c.key = scanString, true
		return when(b == '"')
	case scanColon:
		c.state = scanValue
		return when(b == ':')
	case scanComma:
		object := c.stack[len(c.stack)-1] == '{'
		switch {
		case b == ',' && object:
			c.state = scanName
		case b == ',':
			c.state = scanValue
		case object && b == '}' || !object && b == ']':
			return c.pop()
		default:
			return bad
		}
	case scanString:
		switch {
		case b == '\\':
			c.state = scanEscape
		case b < ' ':
			return bad
		case b == '"' && c.key:
			c.state, c.key = scanColon, false
		case b == '"':
			return c.ended()
		}
	case scanEscape:
		c.state = scanString
		if b == 'u' {
			c.state, c.hex = scanHex, 4
			return more
		}
		return when(strings.IndexByte(`"\/bfnrt`, b) >= 0)
	case scanHex:
		if c.hex--; c.hex == 0 {
			c.state = scanString
		}
		return when(isDigit(b) || 'a' <= b|0x20 && b|0x20 <= 'f')
	case scanLiteral:
		if b != c.rest[0] {
			return bad
		}
		if c.rest = c.rest[1:]; c.rest == "" {
			return c.ended()
		}
	default:
		return c.number(b)
	}
	return more
}

// value takes the first byte of a value.
func (c *scanner) value(b byte) verdict {
	switch b {
	case '{', '[':
		if len(c.stack) == maxDepth {
			return bad
		}
		c.stack = append(c.stack, b)
		c.state = scanObjectFirst
		if b == '[' {
			c.state = scanArrayFirst
		}
	case '"':
		c.state = scanString
	case 't':
		c.state, c.rest = scanLiteral, "rue"
	case 'f':
		c.state, c.rest = scanLiteral, "alse"
	case 'n':
		c.state, c.rest = scanLiteral, "ull"
	case '-':
		c.state = scanMinus
	case '0':
		c.state = scanZero
	default:
		c.state = scanInteger
		return when(isDigit(b))
	}
	return more
}

func (c *scanner) number(b byte) verdict {
	digit := isDigit(b)
	switch s := c.state; {
	case s == scanMinus && b == '0':
		c.state = scanZero
	case (s == scanMinus || s == scanInteger) && digit:
		c.state = scanInteger
	case (s == scanZero || s == scanInteger) && b == '.':
		c.state = scanPoint
	case (s == scanPoint || s == scanFraction) && digit:
		c.state = scanFraction
	case (s == scanZero || s == scanInteger || s == scanFraction) && b|0x20 == 'e':
		c.state = scanExponent
	case s == scanExponent && (b == '+' || b == '-'):
		c.state = scanSign
	case (s == scanExponent || s == scanSign || s == scanDigits) && digit:
		c.state = scanDigits
	case s < scanZero:
		return bad
	case c.ended() == done:
		return past
	default:
		return c.step(b)
	}
	return more
}

// ended says what comes after a value.
func (c *scanner) ended() verdict {
	if len(c.stack) == 0 {
		return done
	}
	c.state = scanComma
	return more
}

func (c *scanner) pop() verdict {
	c.stack = c.stack[:len(c.stack)-1]
	return c.ended()
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }
