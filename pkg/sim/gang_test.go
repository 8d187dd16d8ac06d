package sim_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// Labels of the nodes of random setups: neither is on all nodes.
const (
	rack = "example.com/rack"
	zone = "topology.kubernetes.io/zone"
)

// randomGangs adds labels and up to three gangs, whose members stand between the other jobs.
func randomGangs(t *rapid.T, s *sim.Setup) {
	s.Labels = map[string]map[string]string{}
	for _, n := range s.Nodes {
		own := map[string]string{}
		for _, key := range []string{rack, zone} {
			if v := rapid.IntRange(0, 2).Draw(t, key); v > 0 {
				own[key] = fmt.Sprint(key[:1], v)
			}
		}
		s.Labels[n.Name()] = own
	}
	s.Gangs = sim.GangConfig{
		Drains: rapid.SampledFrom([]gang.Drains{gang.NoDrains, gang.BoundedDrains, gang.AllDrains}).Draw(t, "drains"), DrainAfter: time.Duration(rapid.IntRange(0, 3).Draw(t, "drain after")) * time.Second,
		DrainTimeout: time.Duration(rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "drain timeout")) * time.Second,
	}
	for g := range rapid.IntRange(0, 3).Draw(t, "gangs") {
		members := rapid.SliceOfNDistinct(rapid.IntRange(0, max(0, len(s.Jobs)-1)), 0, 4, rapid.ID[int]).Draw(t, "members")
		randomGang(t, s, fmt.Sprintf("g%d", g), slices.DeleteFunc(members, func(i int) bool {
			return i >= len(s.Jobs) || s.Jobs[i].Gang != nil
		}))
	}
}

// randomGang makes some jobs a gang.
func randomGang(t *rapid.T, s *sim.Setup, name string, members []int) {
	if len(members) == 0 {
		return
	}
	slices.Sort(members)
	levels := rapid.Permutation([]string{rack, zone, sim.Hostname, gang.NVLink, "nowhere"}).Draw(t, "levels")
	required := rapid.SampledFrom([]int{0, 0, 1, 1, 2}).Draw(t, "required")
	preferred := rapid.IntRange(0, 2).Draw(t, "preferred")
	g := &sim.Gang{
		Name: name, MinCount: rapid.IntRange(0, len(members)).Draw(t, "min count"),
		Wishes: gang.Wishes{Required: levels[:required], Preferred: levels[required : required+preferred]},
	}
	first, alike := s.Jobs[members[0]], rapid.Bool().Draw(t, "members alike")
	for _, i := range members {
		if r := first.Request; alike {
			r.UID, r.Pod = s.Jobs[i].Request.UID, s.Jobs[i].Request.Pod
			s.Jobs[i].Request = r
		}
		j := &s.Jobs[i]
		j.Arrive, j.Duration, j.DeclaresEnd, j.Gang = first.Arrive, first.Duration, first.DeclaresEnd, g
		j.Request.Priority = first.Request.Priority
	}
}

// checkGangs: a gang runs whole or not at all, from one time to one other, and where it must.
func checkGangs(t *rapid.T, s *sim.Setup, h *sim.History) {
	seen := map[int]bool{}
	for i := range h.Gangs {
		g := &h.Gangs[i]
		spec := s.Jobs[g.Members[0]].Gang
		running := 0
		for _, job := range g.Members {
			seen[job] = true
			o := &h.Outcomes[job]
			switch {
			case s.Jobs[job].Gang != spec || spec.Name != g.Name || o.Arrived != g.Arrived:
				t.Fatalf("gang %s has member %d, of another gang: %+v", g.Name, job, o)
			case g.State.Placed() && o.State == sim.Dropped:
			case o.State != g.State || o.Started != g.Started || o.Ended != g.Ended:
				t.Fatalf("gang %+v has a member that differs: %+v", g, o)
			case o.State.Placed():
				running++
			}
		}
		least := spec.MinCount
		if least == 0 {
			least = len(g.Members)
		}
		if g.State.Placed() != (running > 0) || running > 0 && running < least {
			t.Fatalf("gang %+v runs with %d members of %d", g, running, least)
		}
		if g.State == sim.Waiting && s.Queue == sim.Drop || g.State == sim.Dropped && s.Queue != sim.Drop {
			t.Fatalf("gang %+v in the queue %v", g, s.Queue)
		}
		checkLevels(t, s, h, g, spec)
	}
	for job := range s.Jobs {
		if (s.Jobs[job].Gang != nil) != seen[job] {
			t.Fatalf("job %d is a member in the setup and not in the history, or the other way round", job)
		}
	}
}

// checkLevels: all members are in one domain of each required label, and the spread is what can be counted.
func checkLevels(t *rapid.T, s *sim.Setup, h *sim.History, g *sim.GangOutcome, spec *sim.Gang) {
	if !g.State.Placed() {
		if g.Spread != nil {
			t.Fatalf("gang %+v has a spread and no place", g)
		}
		return
	}
	for i, key := range h.Levels() {
		domains := map[string]bool{}
		for _, job := range g.Members {
			if o := &h.Outcomes[job]; o.State.Placed() {
				domains[domainOf(s, key, o.Assignment.Node)] = true
			}
		}
		if g.Spread[i] != (gang.Spread{Key: key, Domains: len(domains)}) {
			t.Fatalf("gang %+v is on %v of level %s", g, domains, key)
		}
		for domain := range domains {
			if slices.Contains(spec.Wishes.Required, key) && (len(domains) > 1 || strings.HasPrefix(domain, "!")) {
				t.Fatalf("gang %+v is on %v of the required level %s", g, domains, key)
			}
		}
	}
}

// domainOf names the domain of a node, with a ! for the node alone where it has no label.
func domainOf(s *sim.Setup, key, node string) string {
	if key == sim.Hostname {
		return node
	}
	if domain := s.Labels[node][key]; domain != "" {
		return domain
	}
	return "!" + node
}

// checkMoments looks at the cluster after each event: no device has more than it is, room is kept for one gang at most, which
// waits, and for none of a gang that waits is there anything else.
func checkMoments(t *rapid.T, s *sim.Setup, h *sim.History) {
	for _, sample := range h.Samples {
		m, err := h.MapAt(sample.At)
		must.OK(t, err)
		keeps := map[string]bool{}
		for _, n := range m.Nodes {
			for _, d := range n.Devices {
				for name := range keptOn(t, s, h, &d, sample.At) {
					keeps[name] = true
				}
			}
		}
		if len(keeps) > 1 || len(keeps) > 0 && s.Gangs.Drains == gang.NoDrains {
			t.Fatalf("at %v room is kept for %v", sample.At, keeps)
		}
		for name := range keeps {
			if !slices.ContainsFunc(m.Pending, func(p vgpu.MapPending) bool { return p.Pod == name && p.Members > 0 }) {
				t.Fatalf("at %v room is kept for gang %s, which does not wait: %+v", sample.At, name, m.Pending)
			}
		}
	}
}

// keptOn returns the gangs that room of a device is kept for, and checks what runs there.
func keptOn(t *rapid.T, s *sim.Setup, h *sim.History, d *vgpu.MapDevice, at time.Duration) map[string]bool {
	keeps, used := map[string]bool{}, vgpu.Slots(0)
	for _, slice := range d.Slices {
		job := slices.IndexFunc(s.Jobs, func(j sim.Job) bool { return j.Request.UID == slice.UID })
		if slice.Held {
			keeps[s.Jobs[job].Gang.Name] = true
			continue
		}
		used += slice.To - slice.From
		if job >= 0 && (h.Outcomes[job].Started > at || !h.Outcomes[job].State.Placed()) {
			t.Fatalf("at %v job %d is on device %s: %+v", at, job, d.ID, h.Outcomes[job])
		}
	}
	if used > d.Slots {
		t.Fatalf("at %v device %s has %+v", at, d.ID, d.Slices)
	}
	return keeps
}

// TestDrainsEndProperty: where hosts have room, devices are healthy and pods run for six seconds at most, a gang has room kept
// for it at the first or second look, which are a pause apart, and starts within six seconds more, however many come behind it.
func TestDrainsEndProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s sim.Setup
		for i := range rapid.IntRange(1, 4).Draw(t, "nodes") {
			s.Nodes = append(s.Nodes, healthy(t, fmt.Sprintf("n%d", i)))
		}
		for i := range rapid.IntRange(4, 60).Draw(t, "pods") {
			s.Jobs = append(s.Jobs, sim.Job{
				Request: share(fmt.Sprintf("p%d", i), rapid.SampledFrom([]vgpu.Slots{1, 3, 5, 10}).Draw(t, "slots")),
				Arrive:  time.Duration(rapid.IntRange(0, 30).Draw(t, "arrive")) * time.Second, Duration: time.Duration(rapid.IntRange(1, 6).Draw(t, "duration")) * time.Second,
				DeclaresEnd: rapid.Bool().Draw(t, "declares its end"),
			})
		}
		g := &sim.Gang{Name: "g"}
		for i := range rapid.IntRange(1, 2*len(s.Nodes)).Draw(t, "members") {
			s.Jobs = append(s.Jobs, sim.Job{
				Request: share(fmt.Sprintf("g%d", i), 10), Arrive: 5 * time.Second, Duration: 10 * time.Second, Gang: g,
			})
		}
		s.Queue, s.Gangs = sim.Skip, sim.GangConfig{Drains: gang.AllDrains, DrainAfter: time.Duration(rapid.IntRange(0, 3).Draw(t, "drain after")) * time.Second}
		s.Policy, _ = placement.ByName(rapid.SampledFrom([]string{"packed", "spread"}).Draw(t, "policy"))
		h := play(t, s)
		o := &h.Gangs[0]
		if !o.State.Placed() || o.Drains > 0 && o.Started > o.DrainedAt+6*time.Second || o.Wait() > s.Gangs.DrainAfter+pause+6*time.Second {
			t.Fatalf("the gang waited too long: %+v", o)
		}
	})
}

// healthy returns a node with two devices of ten slots and plenty of room.
func healthy(t *rapid.T, name string) *vgpu.Node {
	var devices []vgpu.Device
	for i := range 2 {
		devices = append(devices, vgpu.Device{
			ID: vgpu.DeviceID(fmt.Sprintf("%s/g%d", name, i)), Index: i, Model: "A100", Slots: 10, Memory: 40 << 30, Healthy: true,
		})
	}
	n, err := vgpu.NewNode(name, devices)
	must.OK(t, err)
	n.SetRoom(plenty)
	return n
}

func share(pod string, slots vgpu.Slots) vgpu.Request {
	return vgpu.Request{UID: vgpu.UID(pod), Pod: pod, Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slots}}}
}
