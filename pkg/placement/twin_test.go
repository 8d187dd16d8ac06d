package placement_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// moment is a node as a pod sees it.
type moment struct {
	n    *vgpu.Node
	free []vgpu.Use
	room vgpu.Room
}

func momentOf(n *vgpu.Node, r *vgpu.Request) moment {
	m := moment{n: n, room: n.Room()}
	for i := range n.Devices() {
		m.free = append(m.free, n.FreeFor(i, r))
	}
	return m
}

func (m *moment) gpus() float64 {
	return min(8, float64(fragmentation.Idle(m.n, m.free))/1000)
}

func (m *moment) cores() float64 { return min(128, float64(m.room.MilliCPU)/1000) }

// twins rate the same pods by the words of each policy, from the ledger before a pod came and the ledger with it.
var twins = map[string]func(before, after moment, r *vgpu.Request, mix *fragmentation.Mix) int64{
	"bestfit": func(_, after moment, _ *vgpu.Request, _ *fragmentation.Mix) int64 {
		return percent * int64(math.Floor(100-100*(after.cores()/128+after.gpus()/8)/2))
	},
	"fgd": func(before, after moment, _ *vgpu.Request, mix *fragmentation.Mix) int64 {
		typical := mix.WithoutMemory().Typical(95)
		d := float64(lossOf(typical, before).Lost-lossOf(typical, after).Lost) / float64(typical.Weight())
		return percent * int64(100/(1+math.Exp(-d/1000)))
	},
	"tandem": func(before, after moment, _ *vgpu.Request, mix *fragmentation.Mix) int64 {
		typical := mix.Demanding(99, 90)
		fills := fragmentation.NewFills(typical)
		was, is := lossOf(fills, before), lossOf(fills, after)
		twelfths, step := 5*(was.Lost-is.Lost)+was.Starved-is.Starved+7*(was.Unfilled-is.Unfilled), 12*80*typical.Weight()
		steps := int64(0)
		for ; steps*step > twelfths; steps-- {
		}
		for ; (steps+1)*step <= twelfths; steps++ {
		}
		return tied + steps
	},
}

func lossOf(by fragmentation.Measure, m moment) fragmentation.Loss {
	return by.Of(m.n, m.free, m.room)
}

// with returns the node with the pod.
func with(t *rapid.T, n *vgpu.Node, r *vgpu.Request, a vgpu.Assignment) moment {
	after := n.Clone()
	must.OK(t, after.Add(a))
	after.SetRoom(n.Room().Minus(r.Host))
	return momentOf(after, r)
}

// TestRateProperty: the rate in a score is that of the node once Assign's assignment is booked and the host's room taken,
// for pods of any number of containers.
func TestRateProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, r, name, p, mix := drawCase(t, 4)
		a, refusal := placement.Assign(n, r, p)
		if refusal != nil {
			return
		}
		got, want := rate(placement.Score(n, r, p)), twins[name](momentOf(n, r), with(t, n, r, a), r, mix)
		if got != want {
			t.Fatalf("%s rates %d, the twin %d: %+v", name, got, want, a)
		}
	})
}

// drawCase draws a node without a cluster, a request, and a policy that goes by a mix of at least one kind.
func drawCase(t *rapid.T, containers int) (*vgpu.Node, *vgpu.Request, string, placement.Policy, *fragmentation.Mix) {
	c := testkit.RandomCluster(t, 1, 4)
	testkit.Fill(t, c, 5)
	testkit.Furnish(t, c)
	r := &vgpu.Request{UID: "new", Pod: "new"}
	if containers > 0 {
		r = testkit.RandomRequest(t, "new", containers)
	}
	r.Host = testkit.RandomRoom(t)
	name := rapid.SampledFrom([]string{"bestfit", "fgd", "tandem"}).Draw(t, "policy")
	p, err := placement.ByName(name)
	must.OK(t, err)
	mix := testkit.RandomMix(t)
	if mix.Weight() == 0 {
		mix = mixFrom(t, []fragmentation.Kind{testkit.RandomKind(t)})
	}
	return c.Nodes()[0].Clone(), r, name, p.With(mix, 0), mix
}

// TestBestDeviceProperty: a share goes to the device of the cheapest variant with the best rate, then with the least left
// of slots and memory, then the first by index, as found by booking the pod on each of them.
func TestBestDeviceProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, r, name, p, mix := drawCase(t, 1)
		var best []int64
		var want vgpu.DeviceID
		for _, way := range everywhere(n, r, 0) {
			a := vgpu.Assignment{UID: r.UID, Pod: r.Pod, Node: n.Name(), Containers: []vgpu.ContainerAssignment{way}}
			if len(way.Devices) > 1 || !feasible(n, r, &a) {
				if len(way.Devices) > 1 {
					return // links decide among whole devices
				}
				continue
			}
			i := n.Index(way.Devices[0])
			d := &n.Devices()[i]
			left := n.FreeFor(i, r).Minus(way.Share.Use())
			key := []int64{
				-costOf(r, d.Model), twins[name](momentOf(n, r), with(t, n, r, a), r, mix), placement.LeastLeft(d, left), int64(-i),
			}
			if best == nil || slices.Compare(key, best) > 0 {
				best, want = key, d.ID
			}
		}
		a, refusal := placement.Assign(n, r, p)
		switch {
		case refusal != nil && best != nil:
			t.Fatalf("%s refuses %s: %v", name, want, refusal)
		case refusal == nil && a.Containers[0].Devices[0] != want:
			t.Fatalf("%s takes %v, the twin %s by %v", name, a.Containers[0].Devices, want, best)
		}
	})
}

// TestHostOnlyProperty: a pod without GPUs fits every node, gets no devices, and is rated by what its CPU and memory leave.
func TestHostOnlyProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, r, name, p, mix := drawCase(t, 0)
		if refusal := placement.Fit(n, r); refusal != nil {
			t.Fatal(refusal)
		}
		a, refusal := placement.Assign(n, r, p)
		if refusal != nil || len(a.Containers) != 0 || a.Node != n.Name() || a.UID != r.UID {
			t.Fatalf("assignment %+v, refusal %v", a, refusal)
		}
		before := momentOf(n, r)
		after := before
		after.room = n.Room().Minus(r.Host)
		if got, want := rate(placement.Score(n, r, p)), twins[name](before, after, r, mix); got != want {
			t.Fatalf("%s rates %d, the twin %d", name, got, want)
		}
		if p := drawPolicy(t); placement.Score(n, r, p) < 0 {
			t.Fatalf("%s refuses a pod without GPUs", p.Name)
		}
	})
}

// TestLikePackedProperty: fgd and tandem that know no usual requests score like packed, and choose its devices.
func TestLikePackedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, r, name, p, _ := drawCase(t, 3)
		if name == "bestfit" {
			return
		}
		bare := p.With(nil, 1)
		if got, want := placement.Score(n, r, bare), placement.Score(n, r, placement.Policy{}); got != want {
			t.Fatalf("%s scores %d, packed %d", name, got, want)
		}
		got, _ := placement.Assign(n, r, bare)
		want, _ := placement.Assign(n, r, placement.Policy{})
		if !slices.EqualFunc(where(&got), where(&want), slices.Equal[[]vgpu.DeviceID]) {
			t.Fatalf("%s takes %v, packed %v", name, where(&got), where(&want))
		}
	})
}
