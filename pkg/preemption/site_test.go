package preemption_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func pick[T any](t *rapid.T, label string, values ...T) T {
	return rapid.SampledFrom(values).Draw(t, label)
}

// number draws a number from low to high, each as likely; rapid's ranges prefer small ones.
func number(t *rapid.T, label string, low, high int) int {
	values := make([]int, 0, high-low+1)
	for v := low; v <= high; v++ {
		values = append(values, v)
	}
	return pick(t, label, values...)
}

func oneIn(t *rapid.T, label string, n int) bool { return number(t, label, 1, n) == n }

// site is a drawn question to Victims.
type site struct {
	cluster *vgpu.Cluster
	gang.Cluster
	want   *gang.Group
	who    preemption.Candidates
	cfg    preemption.Config
	admits []int
	// guards says that some pods have one.
	guards bool
}

// size bounds what is drawn.
type size struct {
	nodes, devices, pods, members int
	// full says that hardly any device has room.
	full bool
}

// small sizes are those that the twin takes.
var small = size{nodes: 4, devices: 4, pods: 11, members: 4}

// randomSite draws a cluster with candidates of all kinds, most of its room taken, and a preemptor: a gang, or a pod.
func randomSite(t *rapid.T, of size, gangs bool) *site {
	s := &site{cluster: testkit.RandomCluster(t, of.nodes, of.devices)}
	s.Nodes = s.cluster.Nodes()
	for _, n := range s.Nodes {
		n.SetRoom(vgpu.Room{MilliCPU: int64(number(t, "cores", 0, 6)) * 1000, Memory: 64 * vgpu.GiB})
	}
	s.label(t)
	if oneIn(t, "admits", 3) {
		for range s.Nodes {
			s.admits = append(s.admits, pick(t, "admitted", 0, 1, 2, 100, 100, 100))
		}
		s.Admits = func(_, node int) int { return s.admits[node] }
	}
	s.cfg = randomConfig(t)
	priority := int32(pick(t, "priority of the preemptor", 0, 1, 2, 2, 2, 3, 3, 3, 3, 3))
	if of.full {
		priority = 3
		s.cfg.MaxSteps = pick(t, "steps", 0, 8, 64)
	}
	for range 5 {
		if s.want = randomPod(t, priority); gangs {
			s.want = randomGang(t, priority, of.members)
		}
		if s.fits(t, nil) || oneIn(t, "too large", 8) {
			break
		}
	}
	if gangs {
		s.placeSome(t)
	}
	s.holdOwn(t)
	for range number(t, "budgets", 0, 2) {
		s.who.Budgets = append(s.who.Budgets, preemption.Budget{
			Name: fmt.Sprint("team/budget-", len(s.who.Budgets)), Allowed: number(t, "allowed", 0, 2),
		})
	}
	s.populate(t, of.pods)
	s.fill(t, priority, of.full)
	return s
}

func (s *site) label(t *rapid.T) {
	racks := gang.Level{Key: "rack", Names: []string{"r1", "r0"}}
	hosts := gang.Level{Key: "host"}
	for i, n := range s.Nodes {
		racks.Domain = append(racks.Domain, int32(pick(t, "rack", 0, 0, 0, 1, 1, 1, -1)))
		hosts.Domain, hosts.Names = append(hosts.Domain, int32(i)), append(hosts.Names, n.Name())
	}
	s.Levels = []gang.Level{racks, hosts}
}

func randomConfig(t *rapid.T) preemption.Config {
	p, err := placement.ByName(pick(t, "policy", "packed", "tandem", "fgd", "spread", "bestfit"))
	must.OK(t, err)
	p = p.With(testkit.RandomMix(t), 1)
	if rapid.Bool().Draw(t, "neighbours") {
		m, err := interference.ByName("hinge")
		must.OK(t, err)
		m.Coefficients = []float64{1, .2}
		p = p.Among(&placement.Neighbours{Model: m, Tenant: workloads, Weights: placement.EvenWeights})
	}
	return preemption.Config{Config: gang.Config{Policy: p}, KeepBudgets: oneIn(t, "keep budgets", 3), Prices: randomPrices(t)}
}

// randomPrices draws prices, of which each may decide against the lost work.
func randomPrices(t *rapid.T) preemption.Prices {
	price := func(of string) int64 { return pick[int64](t, "price of "+of, 0, 1, 50, 100, 150, 1000, 1_000_000) }
	return preemption.Prices{
		Violation: price("a violation"), Step: price("a step"), Broken: price("a broken gang"), Serving: price("a serving pod"), Victim: price("a victim"),
	}
}

// workloads by number: 1 uses the whole device, 2 half of it, others a fifth.
func workloads(w interference.Workload, _ string, part vgpu.MilliGPU) interference.Tenant {
	t := interference.Tenant{Workload: w, Cap: float64(part) / 1000, SM: .2}
	switch w {
	case 1:
		t.SM = 1
	case 2:
		t.SM = .5
	}
	return t
}

// randomPod draws a preemptor that is one pod.
func randomPod(t *rapid.T, priority int32) *gang.Group {
	r := randomRequest(t, "team/new", 3)
	r.Priority = priority
	return &gang.Group{Name: "team/new", Members: []gang.Member{{Request: *r}}, MinCount: 1}
}

// randomRequest draws a request, of whole devices now and then, with what it asks of its host.
func randomRequest(t *rapid.T, pod string, containers int) *vgpu.Request {
	r := testkit.RandomRequest(t, pod, containers)
	if oneIn(t, "whole", 3) {
		slots := pick(t, "slots of whole devices", vgpu.Slots(4), 7, 8, 10, 20)
		r.Containers = []vgpu.ContainerRequest{{Name: "main", Slots: slots}}
		r.Variants = nil
	}
	if oneIn(t, "on a host", 2) {
		r.Host.MilliCPU = int64(number(t, "cores of a pod", 1, 4)) * 1000
	}
	return r
}

// randomGang draws a preemptor of several members.
func randomGang(t *rapid.T, priority int32, most int) *gang.Group {
	g := &gang.Group{Name: "team/new", Wishes: gang.Wishes{
		Required:  pick(t, "required", nil, nil, []string{"rack"}, []string{"host"}, []string{gang.NVLink}, []string{"rack", "host"}),
		Preferred: pick(t, "preferred", nil, []string{"host"}, []string{"host", "rack"}, []string{gang.NVLink}),
	}}
	for k := range pick(t, "classes", 1, 1, 1, 2) {
		like := randomRequest(t, "like", pick(t, "containers", 1, 1, 2))
		if k > 0 && rapid.Bool().Draw(t, "launcher") {
			like.Containers, like.Variants, like.Preferences = nil, nil, nil
		}
		like.Priority = priority
		for range number(t, "members", 1, most) {
			r := *like
			r.Pod = fmt.Sprint("team/new-", len(g.Members))
			r.UID = vgpu.UID(r.Pod)
			g.Members = append(g.Members, gang.Member{Request: r, Rank: len(g.Members)})
		}
	}
	g.MinCount = len(g.Members)
	if rapid.Bool().Draw(t, "fewer will do") {
		g.MinCount = number(t, "min", 1, len(g.Members))
	}
	return g
}

// placeSome gives a place to some members of the preemptor.
func (s *site) placeSome(t *rapid.T) {
	g := s.want
	for i := len(g.Members) - 1; i > 0; i-- {
		r := &g.Members[i].Request
		if len(r.Containers) == 0 || !oneIn(t, "placed", 6) {
			continue
		}
		if a, ok := testkit.RandomAssignment(t, pick(t, "node", s.Nodes...), r); ok && s.cluster.Add(a) == nil {
			g.Placed = append(g.Placed, a)
			g.Members = slices.Delete(g.Members, i, i+1)
		}
	}
}

// holdOwn holds room for some members of the preemptor, wherever they would fit an empty device.
func (s *site) holdOwn(t *rapid.T) {
	for i := range s.want.Members {
		r := &s.want.Members[i].Request
		if len(r.Containers) == 0 || !oneIn(t, "own hold", 8) {
			continue
		}
		if a, ok := testkit.RandomAssignment(t, pick(t, "node", s.Nodes...), r); ok {
			_ = s.cluster.Hold(vgpu.Hold{Assignment: a, Priority: r.Priority}) // what is too large stays out
		}
	}
}

// populate draws pods with places, most of them candidates, and holds.
func (s *site) populate(t *rapid.T, most int) {
	gangs := number(t, "gangs", 0, 2)
	s.guards = oneIn(t, "guards", 3)
	for g := range gangs {
		s.who.Gangs = append(s.who.Gangs, preemption.Gang{Name: fmt.Sprint("team/gang-", g)})
	}
	shared := []int32{int32(number(t, "priority of gang 0", 0, 3)), int32(number(t, "priority of gang 1", 0, 3))}
	for i := range number(t, "pods", most/3, most) {
		p := s.randomCandidate(t, fmt.Sprint("team/old-", i))
		if gangs > 0 && rapid.Bool().Draw(t, "in a gang") {
			p.Gang = number(t, "gang", 0, gangs-1)
			if !oneIn(t, "its own priority", 8) {
				p.Priority = shared[p.Gang]
			}
			if rapid.Bool().Draw(t, "no guard") {
				p.Guard = ""
			}
		}
		tries := 1
		for ; tries < 5 && !s.settle(t, &p); tries++ {
			p.Node = pick(t, "another node", s.Nodes...).Name()
		}
		if tries == 5 {
			continue
		}
		if p.Gang >= 0 || !oneIn(t, "unlisted", 10) {
			s.who.Pods = append(s.who.Pods, p)
		}
	}
	for g := range s.who.Gangs {
		running := 0
		for i := range s.who.Pods {
			if s.who.Pods[i].Gang == g {
				running++
			}
		}
		s.who.Gangs[g].MinCount = number(t, "min count", 1, max(1, running))
	}
}

func (s *site) randomCandidate(t *rapid.T, name string) preemption.Pod {
	p := preemption.Pod{
		UID: vgpu.UID(name), Name: name, Node: pick(t, "node", s.Nodes...).Name(), Gang: -1,
		Priority: int32(pick(t, "priority", 0, 0, 0, 1, 1, 2, 3)), Serving: oneIn(t, "serving", 4), Slow: oneIn(t, "slow", 6),
		Lost: pick[int64](t, "lost", 0, 100, 100, 200, 300), Leaving: oneIn(t, "leaving", 10),
		Host:  vgpu.Room{MilliCPU: pick[int64](t, "its cores", 0, 1000, 2000, 4000)},
		Share: pick(t, "share", vgpu.MilliGPU(0), 100, 300, 1000, 2000), NeverPreempts: oneIn(t, "never preempts", 5),
	}
	if s.guards && oneIn(t, "guarded", 3) {
		p.Guard = pick(t, "guard", preemption.Protected, preemption.TooYoung, preemption.Foreign)
	}
	for b := range s.who.Budgets {
		if oneIn(t, "under a budget", 2) {
			p.Budgets = append(p.Budgets, b)
		}
	}
	return p
}

// settle books a pod on its node, and reports whether it is there: some have no devices, and some room is only held.
func (s *site) settle(t *rapid.T, p *preemption.Pod) bool {
	if oneIn(t, "elsewhere", 20) {
		p.Node = "elsewhere" // which is none of the cluster's
	}
	if p.Node == "elsewhere" || oneIn(t, "without devices", 8) {
		return true
	}
	n := s.cluster.Node(p.Node)
	a, ok := s.rest(n, number(t, "device", 0, 3), p.Name)
	if !ok || rapid.Bool().Draw(t, "of any size") {
		a, ok = testkit.RandomAssignment(t, n, randomRequest(t, p.Name, 2))
	}
	if !ok {
		return false
	}
	h := vgpu.Hold{Assignment: a, Priority: int32(number(t, "priority of a hold", 0, 3))}
	switch number(t, "held", 0, 14) {
	case 0: // room for a pod that is not there yet
		h.UID += "-to-come"
		_ = s.cluster.Hold(h) // what is too large stays out
	case 1: // a hold that the pod has beside its place goes with it
		_ = s.cluster.Hold(h)
		return s.cluster.Add(a) == nil || !s.cluster.Release(a.UID)
	}
	return s.cluster.Add(a) == nil
}

// rest returns an assignment of all slots that a device has left, false where there are none.
func (s *site) rest(n *vgpu.Node, i int, pod string) (a vgpu.Assignment, some bool) {
	if i >= len(n.Devices()) {
		return a, false
	}
	d := &n.Devices()[i]
	left := d.Slots - n.Used(i).Slots
	share, refusal := (&vgpu.ContainerRequest{Name: "main", Slots: left, Memory: 1}).On(d, 0, 0)
	if left == 0 || refusal != nil {
		return a, false
	}
	return vgpu.Assignment{UID: vgpu.UID(pod), Pod: pod, Node: n.Name(), Containers: []vgpu.ContainerAssignment{
		{Name: "main", Devices: []vgpu.DeviceID{d.ID}, Share: share},
	}}, true
}

// fill takes what is left of half of the devices, by pods that stay; of a full cluster of most, by pods of all kinds.
func (s *site) fill(t *rapid.T, priority int32, full bool) {
	for _, n := range s.Nodes {
		for i := range n.Devices() {
			name := fmt.Sprint("team/fills-", n.Name(), "-", i)
			a, some := s.rest(n, i, name)
			if !some || !full && rapid.Bool().Draw(t, "left free") || full && oneIn(t, "left free", 10) {
				continue
			}
			p := preemption.Pod{UID: a.UID, Name: name, Node: n.Name(), Priority: priority, Gang: -1}
			if full && !oneIn(t, "stays", 10) {
				p = s.randomCandidate(t, name)
				p.Node = n.Name()
			}
			if s.cluster.Add(a) == nil && rapid.Bool().Draw(t, "listed") || full {
				s.who.Pods = append(s.who.Pods, p)
			}
		}
	}
}

// without returns the cluster without some of the candidates' pods.
func (s *site) without(pods []int) *gang.Cluster {
	gone, rooms := map[vgpu.UID]bool{}, map[string]vgpu.Room{}
	for _, i := range pods {
		p := &s.who.Pods[i]
		gone[p.UID] = true
		rooms[p.Node] = rooms[p.Node].Plus(p.Host)
	}
	c := s.Cluster
	c.Nodes = slices.Clone(s.Nodes)
	for i, n := range c.Nodes {
		if room, touched := rooms[n.Name()]; touched {
			c.Nodes[i] = n.Without(func(h *vgpu.Hold, _ bool) bool { return gone[h.UID] })
			c.Nodes[i].SetRoom(n.Room().Plus(room))
		}
	}
	return &c
}

// leaving lists the pods that leave already.
func (s *site) leaving() []int {
	var list []int
	for i := range s.who.Pods {
		if s.who.Pods[i].Leaving {
			list = append(list, i)
		}
	}
	return list
}

// fits reports whether the preemptor has room once some pods are gone, beside those that leave already: a pod by
// placement.Fit on some node, a gang by gang.Place.
func (s *site) fits(t *rapid.T, pods []int) bool {
	c := s.without(append(s.leaving(), pods...))
	if len(s.want.Members) > 1 || len(s.want.Placed) > 0 || len(s.want.Wishes.Required) > 0 {
		cfg := s.cfg.Config
		cfg.SkipExplanation = true
		plan, err := gang.Place(c, s.want, cfg)
		must.OK(t, err)
		return plan.Places != nil
	}
	r := &s.want.Members[0].Request
	for i, n := range c.Nodes {
		if (s.Admits == nil || s.Admits(0, i) > 0) && r.Host.Within(n.Room()) && s.cfg.Policy.Fit(n, r) == nil {
			return true
		}
	}
	return false
}

// dump writes all that the question says.
func (s *site) dump() string {
	out := fmt.Sprintf("%+v\n%+v\n", *s.want, s.who)
	for _, n := range s.Nodes {
		out += fmt.Sprintf("%s %v %+v %+v\n", n.Name(), n.Room(), n.Assignments(), n.Holds())
	}
	return out
}
