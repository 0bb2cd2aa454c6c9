package mlx

import (
	"debug/elf"
	"debug/macho"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// checkFile looks at a library file before the system's loader does, whose own
// texts are terse: is it there, not empty, for this system and architecture?
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		return errors.New("it is a folder; the path of the library file itself is needed")
	case info.Size() == 0:
		return errors.New("the file is empty")
	}
	if runtime.GOOS == "darwin" {
		return checkMachO(path)
	}
	return checkELF(path)
}

func checkELF(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("not a Linux library: %w", err)
	}
	defer f.Close()
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	if f.Machine != want {
		return fmt.Errorf("it is built for %v, this program for %v (%s)", f.Machine, want, runtime.GOARCH)
	}
	if f.Type != elf.ET_DYN {
		return fmt.Errorf("it is no shared library but of type %v", f.Type)
	}
	return nil
}

func checkMachO(path string) error {
	if fat, err := macho.OpenFat(path); err == nil {
		defer fat.Close()
		for _, a := range fat.Arches {
			if a.Cpu == macho.CpuArm64 {
				return nil
			}
		}
		return errors.New("it holds no code for arm64")
	}
	f, err := macho.Open(path)
	if err != nil {
		return fmt.Errorf("not a macOS library: %w", err)
	}
	defer f.Close()
	if f.Cpu != macho.CpuArm64 {
		return fmt.Errorf("it is built for %v, this program for %v", f.Cpu, macho.CpuArm64)
	}
	return nil
}
