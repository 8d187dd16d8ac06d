package outlook

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Change is what is otherwise. The zero value changes nothing.
type Change struct {
	// Rules in place of the present ones, nil for these.
	Rules *Rules
	// Pods and Gangs that come in addition, now. Their UIDs and names are new to the snapshot.
	Pods  []snapshot.Pending
	Gangs []snapshot.Gang
	// Progress is called before each play with the number of those that are complete, and of all; nil for no call.
	Progress func(done, of int)
}

// Answer compares a cluster after a time with what it would be after a change.
type Answer struct {
	// Seconds of the time.
	Seconds int64 `json:"seconds"`
	// Now are the figures of the snapshot.
	Now Figures `json:"now"`
	// AsIs is what comes without the change, Changed with it; nil where no change was asked for.
	AsIs    *Outlook `json:"asIs"`
	Changed *Outlook `json:"changed,omitempty"`
	// Differ are the pods that the change gets a node at another time, or on another node, or not at all; pods in addition are not
	// among them.
	Differ []Difference `json:"differ"`
}

// Difference is a pod to which a change makes a difference.
type Difference struct {
	AsIs    Wait `json:"asIs"`
	Changed Wait `json:"changed"`
}

// Sooner reports whether the pod gets a node that it does not get as things stand, or gets one earlier.
func (d *Difference) Sooner() bool {
	return d.Changed.Node != "" && (d.AsIs.Node == "" || d.Changed.AfterSeconds < d.AsIs.AfterSeconds)
}

// Later reports whether the pod gets no node and gets one as things stand, or gets one later.
func (d *Difference) Later() bool {
	return d.AsIs.Node != "" && (d.Changed.Node == "" || d.Changed.AfterSeconds > d.AsIs.AfterSeconds)
}

// Compare plays a snapshot as things stand, and with a change where there is one.
func Compare(s *snapshot.Snapshot, present Rules, change *Change, length time.Duration) (*Answer, error) {
	a := &Answer{Seconds: int64(length / time.Second), Differ: []Difference{}}
	w, err := worldOf(s)
	if err != nil {
		return nil, fmt.Errorf("play snapshot: %w", err)
	}
	usual := w.measure()
	if a.Now, err = w.figures(s, usual); err != nil {
		return nil, fmt.Errorf("play snapshot: %w", err)
	}
	change.progress(0)
	if a.AsIs, err = play(s, present, length, usual); err != nil || change.isNone() {
		return a, err
	}
	change.progress(1)
	more, err := change.apply(s)
	if err != nil {
		return nil, err
	}
	if change.Rules != nil {
		present = *change.Rules
	}
	if a.Changed, err = play(more, present, length, usual); err != nil {
		return nil, fmt.Errorf("with the change: %w", err)
	}
	a.Differ = differences(a.AsIs.Pods, a.Changed.Pods)
	return a, nil
}

func (c *Change) isNone() bool { return c.Rules == nil && len(c.Pods) == 0 }

func (c *Change) progress(done int) {
	of := 2
	if c.isNone() {
		of = 1
	}
	if c.Progress != nil {
		c.Progress(done, of)
	}
}

// apply returns the snapshot with the pods in addition.
func (c *Change) apply(s *snapshot.Snapshot) (*snapshot.Snapshot, error) {
	out := *s
	out.Pending = append(slices.Clone(s.Pending), c.Pods...)
	out.Gangs = append(slices.Clone(s.Gangs), c.Gangs...)
	slices.SortFunc(out.Gangs, func(a, b snapshot.Gang) int { return a.Compare(b.GangName) })
	slices.SortFunc(out.Pending, func(a, b snapshot.Pending) int { return cmp.Compare(a.UID, b.UID) })
	if err := out.Check(); err != nil {
		return nil, fmt.Errorf("add pods: %w", err)
	}
	return &out, nil
}

// differences returns the pods of both lists whose fates are not the same.
func differences(asIs, changed []Wait) []Difference {
	with := map[vgpu.UID]Wait{}
	for _, w := range changed {
		with[w.UID] = w
	}
	all := []Difference{}
	for _, w := range asIs {
		if other, known := with[w.UID]; known && (other.Node != w.Node || other.AfterSeconds != w.AfterSeconds) {
			all = append(all, Difference{w, other})
		}
	}
	return all
}
