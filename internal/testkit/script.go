package testkit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Script runs commands on a cluster. A pod's name comes first, then its containers: "5", "main:3/8Gi", "load:8~"
// (init), "proxy:1+" (sidecar), in the pod's order.
//
//	cluster                        the input draws it
//	draw
//	place POD CONTAINERS…          chooses devices and books them; policy=, priority=, compute-limit= (percent),
//	                               memory-limit=; cpu= and memory= of the host; seed= for random; models=(A100, T4:50%, V100:200%@7) for variants with what the
//	                               container needs of a device and the cost; with "why" each node's refusal is shown
//	mix                            the input lists the usual requests for fgd and tandem; see ParseMix
//	fit POD CONTAINERS…            asks each node
//	legal POD CONTAINERS…          asks all devices of the cluster, whatever is free
//	add POD CONTAINERS… on=DEVICES     books exactly this: on=n1/g0 or on=(n1/g0, n1/g1)
//	hold POD CONTAINERS… on=DEVICES priority= until=
//	remove POD, release POD        an assignment, a hold
//	free                           of each device, for a pod with priority=, self= and ends=
//	sick DEVICE, heal DEVICE
//	levels                         the input has a line per level of nodes: "rack n1=r1 n2=r1 n3=r2"; "host" is there always
//	gang NAME CONTAINERS… members= places a gang and books it; or the input has a line per role: "worker 10 members=4 cpu=2";
//	                               required=, preferred=, losses=(rack:20) in thousandths, min=, domains=, placed=(PODS)
//	drain NAME                     says what room a gang waits for; as gang
//	ends                           the input says when pods end: "a=100 b=200"
//	avoid                          the input lists nodes whose pods are not waited for
//	candidates                     the input says what the eviction of pods costs: "job-* priority=10 gang=job"; see Script.candidates
//	preempt NAME CONTAINERS…       says who makes room for a pod, or with members= for a gang, as gang; with "keep-budgets" no
//	                               budget is violated
//	whatif                         the input is commands, a line each, undone at the end; "{" and "}" lines nest
type Script struct {
	cluster *vgpu.Cluster
	mix     *fragmentation.Mix
	// asked holds the host requests of placed pods.
	asked map[vgpu.UID]vgpu.Room
	// levels of nodes and ends of pods, for gangs.
	levels []gang.Level
	ends   map[string]int64
	// avoided are nodes for whose pods no gang waits.
	avoided []string
	// victims are the candidates of preemptions, nil before the command candidates.
	victims *preemption.Candidates
	// prices are what harms of evictions cost beside the lost work.
	prices preemption.Prices
}

// Run runs the scripts below a directory, each as a test of its own.
func Run(t *testing.T, dir string) {
	datadriven.Walk(t, dir, func(t *testing.T, path string) {
		s := &Script{cluster: Cluster(t)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.Command(d.Cmd, d.CmdArgs, d.Input)
			if err := s.cluster.Check(); err != nil {
				d.Fatalf(t, "the ledger is broken after %s: %v", d.Cmd, err)
			}
			return out
		})
	})
}

// Command runs one command and returns what it says, with an end of line. A mistake in the command is part of that.
func (s *Script) Command(name string, args []datadriven.CmdArg, input string) string {
	commands := map[string]func(*line) (string, error){
		"cluster": s.draws, "draw": s.draw, "place": s.place, "fit": s.fit, "legal": s.legal, "add": s.add, "hold": s.hold,
		"mix": s.usual, "remove": s.remove, "release": s.release, "free": s.free, "sick": s.sick, "heal": s.heal, "whatif": s.whatIf,
		"levels": s.labels, "gang": s.placeGang, "drain": s.drainFor, "ends": s.endings, "avoid": s.avoid,
		"candidates": s.candidates, "preempt": s.preempt,
	}
	run := commands[name]
	if run == nil {
		return fmt.Sprintf("error: unknown command %q\n", name)
	}
	l, err := parseArgs(args)
	if err != nil {
		return fmt.Sprintf("error: %v\n", err)
	}
	l.input = input
	out, err := run(l)
	if err != nil {
		return fmt.Sprintf("%serror: %v\n", out, err)
	}
	return out
}

func (s *Script) draws(l *line) (string, error) {
	c, err := Parse(l.input)
	if err != nil {
		return "", err
	}
	s.cluster, s.asked, s.levels, s.ends, s.avoided, s.victims = c, nil, nil, nil, nil, nil
	s.prices = preemption.Prices{}
	return s.draw(l)
}

func (s *Script) usual(l *line) (out string, err error) {
	if s.mix, err = ParseMix(l.input); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d kinds, weight %d\n", len(s.mix.Kinds()), s.mix.Weight()), nil
}

func (s *Script) draw(*line) (string, error) {
	if len(s.cluster.Nodes()) == 0 {
		return "no nodes\n", nil
	}
	return Draw(s.cluster), nil
}

func (s *Script) place(l *line) (string, error) {
	plan, err := placement.Choose(s.cluster, &l.request, placement.Config{Policy: l.policy.With(s.mix, l.seed)})
	if err != nil {
		return "", err
	}
	out := ""
	if l.why {
		for i := range plan.Refused {
			out += "  " + plan.Refused[i].String() + "\n"
		}
	}
	if plan.Place == nil {
		nearest, _ := placement.Nearest(plan.Refused)
		return fmt.Sprintf("%s pends: %v\n%s", l.request.Pod, nearest, out), nil
	}
	if err := s.cluster.Add(*plan.Place); err != nil {
		return drawAssignment(plan.Place) + out, err
	}
	s.enter(plan.Place, l.request.Host)
	return drawAssignment(plan.Place) + out, nil
}

// enter takes the host request of a pod off the room.
func (s *Script) enter(a *vgpu.Assignment, host vgpu.Room) {
	n := s.cluster.Node(a.Node)
	n.SetRoom(n.Room().Minus(host))
	if s.asked == nil {
		s.asked = map[vgpu.UID]vgpu.Room{}
	}
	s.asked[a.UID] = host
}

// leave gives it back.
func (s *Script) leave(uid vgpu.UID) {
	for _, n := range s.cluster.Nodes() {
		n.Each(func(a *vgpu.Assignment) {
			if a.UID == uid {
				n.SetRoom(n.Room().Plus(s.asked[uid]))
			}
		})
	}
	delete(s.asked, uid)
}

// hosts returns the rooms of the nodes and the host requests of pods, which no WhatIf undoes.
func (s *Script) hosts() (map[*vgpu.Node]vgpu.Room, map[vgpu.UID]vgpu.Room) {
	rooms := map[*vgpu.Node]vgpu.Room{}
	for _, n := range s.cluster.Nodes() {
		rooms[n] = n.Room()
	}
	return rooms, maps.Clone(s.asked)
}

func (s *Script) restoreHosts(rooms map[*vgpu.Node]vgpu.Room, asked map[vgpu.UID]vgpu.Room) {
	for n, room := range rooms {
		n.SetRoom(room)
	}
	s.asked = asked
}

// drawAssignment writes one line per container.
func drawAssignment(a *vgpu.Assignment) string {
	out := ""
	for i := range a.Containers {
		c := &a.Containers[i]
		names := make([]string, 0, len(c.Devices))
		for _, id := range c.Devices {
			names = append(names, string(id))
		}
		out += fmt.Sprintf("%s/%s → %s: %d slots, %v", a.Pod, c.Name, strings.Join(names, " "), c.Share.Slots, c.Share.Memory)
		if c.Share.Devices > 1 {
			out += " each"
		}
		out += fmt.Sprintf(", up to %v and %v\n", c.Share.ComputeLimit, c.Share.MemoryLimit)
	}
	return out
}

func (s *Script) fit(l *line) (string, error) {
	out := ""
	for _, n := range s.cluster.Nodes() {
		answer := "fits"
		if refusal := placement.Fit(n, &l.request); refusal != nil {
			answer = refusal.String() + helps[refusal.Helps]
		}
		out += n.Name() + ": " + answer + "\n"
	}
	return out, nil
}

var helps = map[vgpu.Help]string{
	vgpu.NothingHelps: " (nothing helps)", vgpu.EvictionHelps: " (eviction helps)", vgpu.RecoveryHelps: " (recovery helps)",
}

func (s *Script) legal(l *line) (string, error) {
	if refusal := vgpu.LegalAnywhere(vgpu.Offers(s.cluster.Nodes()), &l.request); refusal != nil {
		return refusal.String() + "\n", nil
	}
	return "legal\n", nil
}

func (s *Script) add(l *line) (string, error) {
	a, err := s.assignment(l)
	if err != nil {
		return "", err
	}
	return done(s.cluster.Add(a))
}

func (s *Script) hold(l *line) (string, error) {
	a, err := s.assignment(l)
	if err != nil {
		return "", err
	}
	return done(s.cluster.Hold(vgpu.Hold{Assignment: a, Priority: l.request.Priority, Until: l.until}))
}

func done(err error) (string, error) {
	if err != nil {
		return "", err
	}
	return "ok\n", nil
}

// assignment puts every container on the devices that the line names.
func (s *Script) assignment(l *line) (vgpu.Assignment, error) {
	if len(l.on) == 0 {
		return vgpu.Assignment{}, fmt.Errorf("name devices with on=")
	}
	n, i, err := s.find(string(l.on[0]))
	if err != nil {
		return vgpu.Assignment{}, err
	}
	a := vgpu.Assignment{UID: l.request.UID, Pod: l.request.Pod, Node: n.Name()}
	for k := range l.request.Containers {
		c := &l.request.Containers[k]
		share, refusal := l.request.On(k, &n.Devices()[i])
		if refusal != nil {
			return a, fmt.Errorf("%v", *refusal)
		}
		a.Containers = append(a.Containers, vgpu.ContainerAssignment{Name: c.Name, Kind: c.Kind, Devices: l.on, Share: share})
	}
	return a, nil
}

func (s *Script) remove(l *line) (string, error) {
	s.leave(l.request.UID)
	return fmt.Sprintf("%v\n", s.cluster.Remove(l.request.UID)), nil
}

func (s *Script) release(l *line) (string, error) {
	return fmt.Sprintf("%v\n", s.cluster.Release(l.request.UID)), nil
}

func (s *Script) free(l *line) (string, error) {
	asking := l.request
	asking.UID = l.self
	out := ""
	for _, n := range s.cluster.Nodes() {
		devices := make([]string, 0, len(n.Devices()))
		for i := range n.Devices() {
			devices = append(devices, n.Devices()[i].Name()+" "+n.FreeFor(i, &asking).String())
		}
		out += n.Name() + ": " + strings.Join(devices, " | ") + "\n"
	}
	return out, nil
}

func (s *Script) sick(l *line) (string, error) { return s.health(l, false) }
func (s *Script) heal(l *line) (string, error) { return s.health(l, true) }

// health rebuilds the node, since devices of a ledger do not change.
func (s *Script) health(l *line, healthy bool) (string, error) {
	old, i, err := s.find(l.request.Pod)
	if err != nil {
		return "", err
	}
	nodes := make([]*vgpu.Node, 0, len(s.cluster.Nodes()))
	for _, n := range s.cluster.Nodes() {
		if n != old {
			nodes = append(nodes, n.Clone())
			continue
		}
		devices := slices.Clone(n.Devices())
		devices[i].Healthy = healthy
		next, err := rebuilt(n, devices)
		if err != nil {
			return "", err
		}
		nodes = append(nodes, next)
	}
	if s.cluster, err = vgpu.NewCluster(nodes...); err != nil {
		return "", err
	}
	return "ok\n", nil
}

// rebuilt returns a node with the ledger of n and other devices.
func rebuilt(n *vgpu.Node, devices []vgpu.Device) (*vgpu.Node, error) {
	next, err := vgpu.NewNode(n.Name(), devices)
	if err != nil {
		return nil, err
	}
	next.SetRoom(n.Room())
	for _, a := range n.Assignments() {
		if err := next.Add(a); err != nil {
			return nil, err
		}
	}
	for _, h := range n.Holds() {
		if err := next.Hold(h); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// find returns the node and the position of a device such as n1/g0.
func (s *Script) find(device string) (*vgpu.Node, int, error) {
	node, _, _ := strings.Cut(device, "/")
	if n := s.cluster.Node(node); n != nil {
		if i := n.Index(vgpu.DeviceID(device)); i >= 0 {
			return n, i, nil
		}
	}
	return nil, 0, fmt.Errorf("unknown device %q", device)
}
