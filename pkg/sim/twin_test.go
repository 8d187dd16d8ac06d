package sim_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// fate is an outcome in brief.
type fate struct {
	Placed         bool
	Started, Ended time.Duration
	Where          vgpu.Assignment
}

func brief(h *sim.History) []fate {
	all := make([]fate, 0, len(h.Outcomes))
	for i := range h.Outcomes {
		o := &h.Outcomes[i]
		all = append(all, fate{o.State.Placed(), o.Started, o.Ended, o.Assignment})
	}
	return all
}

// twin plays a setup second by second. It makes the cluster anew for every decision, from the pods that are there at that
// time, and lets placement.Choose, which the simulator does not use, pick among the nodes whose hosts have room.
func twin(t *rapid.T, s sim.Setup) []fate {
	w := &world{t: t, s: s, policy: s.Policy.With(s.Mix, s.Seed), fates: make([]fate, len(s.Jobs)), gone: map[int]bool{}}
	for now := time.Duration(0); now <= 100*time.Second; now += time.Second {
		for _, earlier := range []bool{true, false} {
			if earlier && !w.someEnd(now) {
				continue // those that wait are tried after an end only; nothing else makes room
			}
			w.pass(now, earlier)
		}
	}
	return w.fates
}

type world struct {
	t      *rapid.T
	s      sim.Setup
	policy placement.Policy
	fates  []fate
	gone   map[int]bool
}

// someEnd reports whether a pod ends now.
func (w *world) someEnd(now time.Duration) bool {
	for i := range w.fates {
		if w.fates[i].Placed && w.s.Jobs[i].Duration > 0 && w.fates[i].Ended == now {
			return true
		}
	}
	return false
}

// pass tries those that arrived earlier, or those that arrive now, in the order of their arrival.
func (w *world) pass(now time.Duration, earlier bool) {
	for at := time.Duration(0); at <= now; at += time.Second {
		if (at < now) != earlier {
			continue
		}
		for i := range w.s.Jobs {
			if w.s.Jobs[i].Arrive != at || w.fates[i].Placed || w.gone[i] {
				continue
			}
			if w.s.Queue == sim.FIFO && w.somebodyBefore(i) {
				continue
			}
			if !w.place(i, now) && w.s.Queue == sim.Drop {
				w.gone[i] = true
			}
		}
	}
}

// somebodyBefore reports whether a pod that arrived before job i waits.
func (w *world) somebodyBefore(i int) bool {
	for k := range w.s.Jobs {
		before := w.s.Jobs[k].Arrive < w.s.Jobs[i].Arrive || w.s.Jobs[k].Arrive == w.s.Jobs[i].Arrive && k < i
		if before && !w.fates[k].Placed {
			return true
		}
	}
	return false
}

func (w *world) place(i int, now time.Duration) bool {
	job := &w.s.Jobs[i]
	var nodes []*vgpu.Node
	for _, n := range w.s.Nodes {
		n = n.Clone()
		for k := range w.fates {
			f := &w.fates[k]
			if f.Placed && f.Where.Node == n.Name() && (w.s.Jobs[k].Duration == 0 || now < f.Ended) {
				w.book(n, k)
			}
		}
		if job.Request.Host.Within(n.Room()) {
			nodes = append(nodes, n)
		}
	}
	c, err := vgpu.NewCluster(nodes...)
	if err != nil {
		w.t.Fatal(err)
	}
	a := w.choose(c, &job.Request)
	if a == nil {
		return false
	}
	w.fates[i] = fate{Placed: true, Started: now, Where: *a}
	if job.Duration > 0 {
		w.fates[i].Ended = now + job.Duration
	}
	return true
}

func (w *world) book(n *vgpu.Node, k int) {
	if len(w.fates[k].Where.Containers) > 0 {
		if err := n.Add(w.fates[k].Where); err != nil {
			w.t.Fatal(err)
		}
	}
	n.SetRoom(n.Room().Minus(w.s.Jobs[k].Request.Host))
}

func (w *world) choose(c *vgpu.Cluster, r *vgpu.Request) *vgpu.Assignment {
	if len(r.Containers) > 0 {
		plan, err := placement.Choose(c, r, placement.Config{Policy: w.policy})
		if err != nil {
			w.t.Fatal(err)
		}
		return plan.Place
	}
	var best *vgpu.Assignment // Choose refuses pods without GPUs
	top := int64(0)
	nodes := c.Nodes()
	if plain := slices.DeleteFunc(slices.Clone(nodes), func(n *vgpu.Node) bool { return len(n.Devices()) > 0 }); len(plain) > 0 {
		nodes = plain
	}
	for _, n := range nodes {
		if s := placement.Score(n, r, w.policy); best == nil || s > top {
			best, top = &vgpu.Assignment{UID: r.UID, Pod: r.Pod, Node: n.Name(), Tenancy: r.Tenancy}, s
		}
	}
	return best
}
