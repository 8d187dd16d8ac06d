package server

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/group"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
)

// Line is a line of a server's report. Lines of steps have no Event.
type Line struct {
	// Event is "listening", "worker-joined", "worker-left", "worker-lost", the same of servers, "moved", "finished" or, for a
	// step, "".
	Event string `json:"event,omitempty"`
	// Step is the number of steps done so far.
	Step int `json:"step"`
	// Loss is the mean loss of the step's batch before the step; in the last line, that of the last step.
	Loss float64 `json:"loss,omitempty"`
	// Workers is the number of workers that computed the step, Servers that of the servers with parameters.
	Workers int `json:"workers,omitempty"`
	Servers int `json:"servers,omitempty"`
	// Redone is the number of slices of the step that had to be computed again.
	Redone int `json:"redone,omitempty"`
	// Samples is the number of samples of all steps so far, Seconds the time since the server began.
	Samples int     `json:"samples,omitempty"`
	Seconds float64 `json:"seconds"`
	// ID, Name and Address are those of a member.
	ID      int    `json:"id,omitempty"`
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"`
	// Digest is the SHA-256 of the trained parameters, in the last line.
	Digest string `json:"digest,omitempty"`
}

// reporter writes lines of JSON.
type reporter struct {
	mu    sync.Mutex
	out   io.Writer
	batch int
	steps int
	every int
	begun time.Time
	last  Line
}

func newReporter(o Options) *reporter {
	return &reporter{out: o.Out, batch: o.Spec.Batch, steps: o.Steps, every: o.Every, begun: time.Now()}
}

// write writes a line. A reader that is gone is no reason to stop a training.
func (r *reporter) write(l Line) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l.Seconds = float64(time.Since(r.begun).Milliseconds()) / 1000
	_ = json.NewEncoder(r.out).Encode(l)
}

func (r *reporter) listening(address string) { r.write(Line{Event: "listening", Address: address}) }

func (r *reporter) member(event string, id int, name string, step int) {
	r.write(Line{Event: event, ID: id, Name: name, Step: step})
}

func (r *reporter) moved(e group.Moved) {
	r.write(Line{Event: "moved", Step: e.Step, Servers: len(e.Layout.Parts)})
}

// step writes the line of a step, of each one that every asks for and of the last one.
func (r *reporter) step(e group.Stepped) {
	r.last = Line{
		Step: e.Step, Loss: float64(e.Loss) / model.LossUnit, Workers: e.Workers, Servers: e.Servers, Redone: e.Redone,
		Samples: e.Step * r.batch,
	}
	if e.Step%r.every == 0 || e.Step == r.steps {
		r.write(r.last)
	}
}

func (r *reporter) finished(params []float32) {
	sum := sha256.Sum256(wire.OfFloats(params))
	r.write(Line{Event: "finished", Step: r.last.Step, Loss: r.last.Loss, Samples: r.last.Samples, Digest: hex.EncodeToString(sum[:])})
}
