package sysmem

import (
	"encoding/binary"
	"syscall"
)

// available is the size of the memory: what can be freed of it is not known
// without the kernel's private interfaces.
func available() (Memory, bool) {
	value, err := syscall.Sysctl("hw.memsize")
	if err != nil || len(value) > 8 {
		return Memory{}, false
	}
	// The number comes as text: eight bytes, of which Sysctl cuts a last zero.
	var n [8]byte
	copy(n[:], value)
	bytes := int64(binary.LittleEndian.Uint64(n[:]))
	return Memory{Bytes: bytes, Of: "in this machine"}, bytes > 0
}
