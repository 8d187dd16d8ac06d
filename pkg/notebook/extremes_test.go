package notebook_test

import (
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/notebook"
)

// BenchmarkExtremes is one decision on a notebook whose server tells of as many kernels and terminals as its two answers of 1 MiB can hold.
func BenchmarkExtremes(b *testing.B) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	s := &notebook.Server{ReadySince: at, GPU: notebook.GPUQuiet}
	for i := range 16_000 {
		s.Kernels = append(s.Kernels, notebook.Kernel{State: "idle", Activity: at.Add(time.Duration(i) * time.Second)})
		s.Terminals = append(s.Terminals, at.Add(time.Duration(i)*time.Second))
	}
	c := notebook.Config{Limit: time.Hour, Notice: time.Minute, Step: time.Minute}
	b.Run("notebook/16000-kernels-and-terminals", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := notebook.Decide(notebook.Memory{}, notebook.Serving("pod", s), at.Add(24*time.Hour), c); err != nil {
				b.Fatal(err)
			}
		}
	})
}
