package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// step is one thing that happens in a sequence.
type step struct {
	what  string
	do    func(context.Context, *Node) error
	pause time.Duration // afterwards
}

// Sequence is a plan: which faults strike when, and which pods come and go meanwhile. A sequence depends on nothing but
// its seed, and has at least one fault.
type Sequence struct {
	Seed  uint64
	steps []step
}

const (
	// steps of a sequence. More would make the agent's hold times, which double with each relapse of a device, longer
	// than the wait for the end.
	minSteps, maxSteps = 8, 14
	// maxPause between two steps.
	maxPause = 1500 * time.Millisecond
)

// planner makes a sequence.
type planner struct {
	rng    *rand.Rand
	gpus   int
	slots  int
	faults []Fault
	// free slots by device, and the pods that hold the others.
	free []int
	pods []planned
	made int
	// active faults that the sequence can end.
	active []active
	steps  []step
}

type planned struct {
	name          string
	device, slots int
}

type active struct {
	fault  Fault
	device int
}

// Plan returns the sequence of a seed for nodes of the given kind. Without SmallDisk there are no faults that need
// root.
func Plan(seed uint64, spec Spec) Sequence {
	p := &planner{rng: rand.New(rand.NewPCG(seed, 1)), gpus: spec.GPUs, slots: spec.SlotsPerGPU}
	for _, f := range Faults() {
		if !f.root || spec.SmallDisk {
			p.faults = append(p.faults, f)
		}
	}
	for range p.gpus {
		p.free = append(p.free, p.slots)
	}
	for range 2 + p.rng.IntN(3) {
		p.create()
	}
	p.strike()
	for range minSteps + p.rng.IntN(maxSteps-minSteps+1) {
		switch roll := p.rng.IntN(10); {
		case roll < 4:
			p.strike()
		case roll < 6 && len(p.active) > 0:
			p.lift(p.rng.IntN(len(p.active)))
		case roll < 8:
			p.create()
		default:
			p.remove()
		}
	}
	for len(p.active) > 0 {
		p.lift(p.rng.IntN(len(p.active)))
	}
	return Sequence{Seed: seed, steps: p.steps}
}

// add appends a step.
func (p *planner) add(what string, do func(context.Context, *Node) error) {
	pause := time.Duration(p.rng.Int64N(int64(maxPause)))
	p.steps = append(p.steps, step{what: what, do: do, pause: pause})
}

func (p *planner) create() {
	device, slots := p.rng.IntN(p.gpus), 1+p.rng.IntN(p.slots/2)
	if p.free[device] < slots {
		return
	}
	p.free[device] -= slots
	p.made++
	name := fmt.Sprintf("p%d", p.made)
	p.pods = append(p.pods, planned{name, device, slots})
	p.add(fmt.Sprintf("create %s: %d slots of g%d", name, slots, device), func(ctx context.Context, n *Node) error {
		_, err := n.pods.create(ctx, name, n.uuids[device], slots)
		return err
	})
}

func (p *planner) remove() {
	if len(p.pods) == 0 {
		return
	}
	at := p.rng.IntN(len(p.pods))
	gone := p.pods[at]
	p.pods = slices.Delete(p.pods, at, at+1)
	p.free[gone.device] += gone.slots
	p.add("delete "+gone.name, func(ctx context.Context, n *Node) error { return n.pods.remove(ctx, gone.name) })
}

func (p *planner) strike() {
	f, device, dice := p.faults[p.rng.IntN(len(p.faults))], p.rng.IntN(p.gpus), p.rng.IntN(1000)
	p.add(fmt.Sprintf("g%d: %s (%d)", device, f.Name, dice), func(ctx context.Context, n *Node) error {
		return f.strike(ctx, n, n.uuids[device], dice)
	})
	if f.lift != nil {
		p.active = append(p.active, active{f, device})
	}
}

func (p *planner) lift(at int) {
	a := p.active[at]
	p.active = slices.Delete(p.active, at, at+1)
	p.add(fmt.Sprintf("g%d: %s is over", a.device, a.fault.Name), func(ctx context.Context, n *Node) error {
		return a.fault.lift(ctx, n, n.uuids[a.device])
	})
}

// String lists the steps.
func (s Sequence) String() string {
	var b strings.Builder
	for i, step := range s.steps {
		fmt.Fprintf(&b, "%2d %s, %v\n", i, step.what, step.pause.Round(time.Millisecond))
	}
	return b.String()
}

// play does the steps on a node.
func (s Sequence) play(ctx context.Context, n *Node) error {
	for i, step := range s.steps {
		if err := step.do(ctx, n); err != nil {
			return fmt.Errorf("step %d, %s: %w", i, step.what, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(step.pause):
		}
	}
	return nil
}
