// Package record keeps the figures of the GPU suite in a file. The suite writes the file after each figure, so that an
// interrupted run loses nothing and can continue.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Report is all figures of one GPU.
type Report struct {
	// Machine is the machine of the measurements.
	Machine Machine `json:"machine"`
	// Figures by their name, "sm/compute/50".
	Figures map[string]Figure `json:"figures"`

	path string
}

// Machine is a GPU and what is around it.
type Machine struct {
	GPU        string `json:"gpu"`
	SMs        int    `json:"sms"`
	Memory     uint64 `json:"memoryBytes"`
	Capability string `json:"computeCapability"`
	Driver     string `json:"driver"`
	CUDA       string `json:"cuda"`
	Kernel     string `json:"kernel"`
	// MPS is what the control program says of itself, or why there is none.
	MPS   string `json:"mps"`
	CPUs  int    `json:"cpus"`
	Date  string `json:"date"`
	Torch string `json:"torch,omitempty"`
}

// Figure is a measurement or an observation.
type Figure struct {
	// The name of the figure.
	What string `json:"what"`
	Unit string `json:"unit,omitempty"`
	// Values of the repetitions, in their order.
	Values []float64 `json:"values,omitempty"`
	// Facts are observations without a number, one for each repetition.
	Facts []string `json:"facts,omitempty"`
	// Error says why there is no figure.
	Error string `json:"error,omitempty"`
}

// Median of the values, 0 for none.
func (f Figure) Median() float64 {
	if len(f.Values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(f.Values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Range returns the least and the greatest value.
func (f Figure) Range() (least, greatest float64) {
	if len(f.Values) == 0 {
		return 0, 0
	}
	return slices.Min(f.Values), slices.Max(f.Values)
}

// Open reads the report of a file, or begins one.
func Open(path string) (*Report, error) {
	r := &Report{Figures: map[string]Figure{}, path: path}
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if r.Figures == nil {
		r.Figures = map[string]Figure{}
	}
	return r, nil
}

// Has reports whether there is a figure without an error.
func (r *Report) Has(name string) bool {
	f, ok := r.Figures[name]
	return ok && f.Error == ""
}

// Set keeps a figure and writes the file.
func (r *Report) Set(name string, f Figure) error {
	r.Figures[name] = f
	return r.Save()
}

// Save writes the file, whole or not at all.
func (r *Report) Save() error {
	raw, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", r.path, err)
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(r.path+".new", append(raw, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(r.path+".new", r.path)
}
