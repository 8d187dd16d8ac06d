package why_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
	"github.com/tandem-gpu/tandem/test/must"
)

// exponential is the prediction for a pod whose remaining time has a mean in seconds and no memory.
func exponential(mean float64, at time.Time) *snapshot.Ends {
	e := &snapshot.Ends{At: at, Known: 100}
	for _, p := range snapshot.EndParts() {
		e.AfterSeconds = append(e.AfterSeconds, int64(math.Round(-mean*math.Log1p(-p))))
	}
	return e
}

// foretell gives some of the pods of a drawn snapshot predictions.
func foretell(t *rapid.T, s *snapshot.Snapshot) {
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			if p := &s.Nodes[i].Pods[k]; rapid.Bool().Draw(t, "foreseen") {
				p.Ends = exponential(rapid.Float64Range(1, 1000).Draw(t, "mean"), s.At.Add(-time.Duration(rapid.IntRange(0, 100).Draw(t, "age"))*time.Second))
				p.Ends.Known = rapid.IntRange(0, 100).Draw(t, "known")
			}
		}
	}
}

func changeOf(a *why.Answer, kind why.Kind) *why.Change {
	if at := slices.IndexFunc(a.Changes, func(c why.Change) bool { return c.Kind == kind }); at >= 0 {
		return &a.Changes[at]
	}
	return nil
}

// likelyEnded returns a node without the pods that end some time.
func likelyEnded(s *snapshot.Snapshot, n *vgpu.Node) *vgpu.Node {
	return n.Without(func(h *vgpu.Hold, held bool) bool {
		return !held && slices.ContainsFunc(s.Nodes, func(o snapshot.Node) bool {
			return slices.ContainsFunc(o.Pods, func(p snapshot.Pod) bool { return p.UID == h.UID && (p.Ends != nil || !p.EndsBy.IsZero()) })
		})
	})
}

// TestLikelyLaw: there is a range where some end is predicted and the pod fits once all pods that end have ended, and no range elsewhere. The pod
// fits when the named pods have ended, and not with one of them. Pods that declare an end have ended by then.
func TestLikelyLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, r := drawWaiting(t)
		a := answer(t, s)
		var ended []*vgpu.Node
		predicted := false
		for i, n := range clusterOf(t, s).Nodes() {
			ended = append(ended, likelyEnded(s, n))
			predicted = predicted || s.Nodes[i].Problem == "" && slices.ContainsFunc(s.Nodes[i].Pods, func(p snapshot.Pod) bool { return p.Ends != nil })
		}
		c := changeOf(a, why.PodsLikelyEnd)
		if want := predicted && len(a.Fits) == 0 && fits(s, ended, r); want != (c != nil) {
			t.Fatalf("a range is wanted: %v, the changes are %+v", want, a.Changes)
		}
		if c == nil {
			return
		}
		if c.From < s.At.Unix() || c.From > c.At || c.At > c.To {
			t.Fatalf("from %d to %d with %d in the middle", c.From, c.To, c.At)
		}
		if declared := changeOf(a, why.PodsEnd); declared != nil && c.To > declared.At {
			t.Fatalf("until %d, and pods that declare it have ended by %d", c.To, declared.At)
		}
		least := 1000
		for i := range s.Nodes {
			for k := range s.Nodes[i].Pods {
				p := &s.Nodes[i].Pods[k]
				if p.Ends != nil && slices.ContainsFunc(c.Leave, func(l why.Leaving) bool { return l.UID == p.UID }) {
					least = min(least, p.Ends.Known)
				}
			}
		}
		if least < 1000 && c.Known != least {
			t.Fatalf("%d pods are known, want %d", c.Known, least)
		}
		for but := range len(c.Leave) + 1 {
			cluster := clusterOf(t, s)
			for i := range c.Leave {
				if i != but {
					cluster.Remove(c.Leave[i].UID)
				}
			}
			if got, want := fits(s, cluster.Nodes(), r), but == len(c.Leave); got != want {
				t.Fatalf("without part %d of %+v the pod fits: %v", but, c, got)
			}
		}
	})
}

// crowded returns a cluster of nodes with one device of ten slots each, each full of pods with means of their own, and a pod that waits.
func crowded(r *rand.Rand, nodes int, wants vgpu.Slots) (*snapshot.Snapshot, map[vgpu.UID]float64) {
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: time.Unix(1e6, 0)}
	means := map[vgpu.UID]float64{}
	for i := range nodes {
		n := snapshot.Node{Name: fmt.Sprintf("n%d", i), Holds: []snapshot.Hold{}}
		n.Devices = []snapshot.Device{{ID: vgpu.DeviceID(n.Name + "-g"), Model: "T4", Slots: 10, MemoryBytes: 10 * vgpu.GiB, Healthy: true}}
		for free := vgpu.Slots(10); free > 0; {
			slots := min(free, vgpu.Slots(1+r.IntN(10)))
			uid := vgpu.UID(fmt.Sprintf("%s-p%02d", n.Name, free))
			means[uid] = 3600 * math.Exp(r.Float64()*math.Log(1000))
			n.Pods = append(n.Pods, snapshot.Pod{
				Name: snapshot.Name{Namespace: "a", Name: string(uid), UID: uid}, Ends: exponential(means[uid], s.At),
				Containers: []snapshot.Container{{
					Name: "c", Kind: "app", Devices: []vgpu.DeviceID{n.Devices[0].ID}, Slots: slots, MemoryBytes: vgpu.Bytes(slots) * vgpu.GiB,
					ComputeLimit: vgpu.MilliGPU(slots) * 100, MemoryLimitBytes: vgpu.Bytes(slots) * vgpu.GiB,
				}},
			})
			free -= slots
		}
		s.Nodes = append(s.Nodes, n)
	}
	s.Pending = []snapshot.Pending{{Name: snapshot.NameOf("a/waits", "waits"), Request: &snapshot.Request{
		Containers: []snapshot.ContainerRequest{{Name: "c", Kind: "app", Slots: wants}},
	}}}
	s.Sort()
	return s, means
}

// roomAt draws when all pods end, and returns when the pod that waits has room.
func roomAt(r *rand.Rand, s *snapshot.Snapshot, means map[vgpu.UID]float64) float64 {
	best := math.Inf(1)
	for i := range s.Nodes {
		type end struct {
			at    float64
			slots vgpu.Slots
		}
		var ends []end
		for k := range s.Nodes[i].Pods {
			p := &s.Nodes[i].Pods[k]
			ends = append(ends, end{r.ExpFloat64() * means[p.UID], p.Containers[0].Slots})
		}
		slices.SortFunc(ends, func(a, b end) int { return int(math.Copysign(1, a.at-b.at)) })
		free := vgpu.Slots(0)
		for _, e := range ends {
			if free += e.slots; free >= s.Pending[0].Request.Containers[0].Slots {
				best = min(best, e.at)
				break
			}
		}
	}
	return best
}

// TestLikelyRangesAreCalibrated: where the predictions are right, four of five pods find room within the range, whether they wait for the first of
// many pods to end or for the last of some.
func TestLikelyRangesAreCalibrated(t *testing.T) {
	for _, test := range []struct {
		nodes int
		wants vgpu.Slots
	}{{1, 1}, {1, 10}, {3, 10}, {40, 1}, {40, 10}, {200, 3}} {
		t.Run(fmt.Sprintf("%d nodes, %d slots", test.nodes, test.wants), func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(test.nodes)))
			within, lower, all := 0, 0, 0
			for range 60 {
				s, means := crowded(r, test.nodes, test.wants)
				a, err := why.Pod(s, "waits")
				must.OK(t, err)
				c := changeOf(a, why.PodsLikelyEnd)
				if c == nil {
					t.Fatalf("no range: %+v", a.Changes)
				}
				for range 50 {
					at := float64(s.At.Unix()) + roomAt(r, s, means)
					all++
					switch {
					case at < float64(c.From):
						lower++
					case at <= float64(c.To)+1:
						within++
					}
				}
			}
			part, below := 100*within/all, 100*lower/all
			if part < 72 || part > 88 || below < 4 || below > 18 {
				t.Errorf("%d %% of %d are within the range, %d %% before it", part, all, below)
			}
		})
	}
}

// A gang that runs ends together: the room that two of its members leave is as late as that of one.
func TestLikelyGangsEndTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	of := func(together bool) *why.Change {
		s, _ := crowded(r, 1, 10)
		p := s.Nodes[0].Pods[0]
		p.Containers[0].Slots, p.Containers[0].MemoryBytes = 1, vgpu.GiB
		p.Containers[0].ComputeLimit, p.Containers[0].MemoryLimitBytes = 100, vgpu.GiB
		s.Nodes[0].Pods = nil
		for i := range 10 {
			one := p
			one.Name = snapshot.NameOf(fmt.Sprintf("a/m%d", i), vgpu.UID(fmt.Sprintf("m%d", i)))
			one.Ends = exponential(3600, s.At)
			one.Ends.Known = 40 + i
			if together {
				one.Gang = &snapshot.GangName{Source: "label", Namespace: "a", Name: "job"}
			}
			s.Nodes[0].Pods = append(s.Nodes[0].Pods, one)
		}
		a, err := why.Pod(s, "waits")
		must.OK(t, err)
		return changeOf(a, why.PodsLikelyEnd)
	}
	// The median of one exponential is 0.69 of its mean, that of the last of ten 2.7 of it.
	gang, alone := of(true), of(false)
	if median := gang.At - 1e6; median < 2200 || median > 2800 {
		t.Errorf("half of the gangs end within %d s, want 2495", median)
	}
	if median := alone.At - 1e6; median < 8000 || median > 12000 {
		t.Errorf("half of the pods alone end within %d s, want 9740", median)
	}
	if len(gang.Leave) != 10 || gang.Known != 40 || gang.Rivals != 0 {
		t.Errorf("the pods that matter are %+v", gang)
	}
}
