// Package sysmem says how much memory a machine has to give.
package sysmem

// Memory is what can be taken.
type Memory struct {
	Bytes int64
	// Of says what the number is, for error texts: "free on this machine".
	Of string
}

// Available is the memory that this process can still take without the machine
// swapping or a container's limit ending it. ok is false where that is not
// known.
func Available() (m Memory, ok bool) { return available() }
