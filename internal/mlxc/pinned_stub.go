//go:build !(cgo && ((linux && (amd64 || arm64)) || (darwin && arm64)))

package mlxc

// Pinned is not here.
func Pinned(int) (host, device uintptr) { return 0, 0 }

// FreePinned is not here.
func FreePinned(uintptr) {}

// ReadPinned is not here.
func ReadPinned(uintptr, []int32) {}

// DeviceAttribute is not here.
func DeviceAttribute(int) int { return 0 }
