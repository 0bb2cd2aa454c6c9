package main

import (
	"encoding/json"
	"fmt"

	"github.com/godflash/godflash/internal/readfile"
)

// readReport reads what -json wrote.
func readReport(name string) (reporter, error) {
	data, err := readfile.Regular(name, 64<<20)
	if err != nil {
		return nil, usagef("-read: %w", err)
	}
	var kind struct{ Shape, Model json.RawMessage }
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var r reporter
	switch {
	case kind.Shape != nil:
		r = &shapeReport{}
	case kind.Model != nil:
		r = &report{}
	default:
		return nil, fmt.Errorf("%s: it is no report that -json wrote", name)
	}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return r, nil
}
