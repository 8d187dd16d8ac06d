package testkit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// gangLine is the arguments of a gang beside those of its members.
type gangLine struct {
	wishes  gang.Wishes
	losses  []gang.Loss
	placed  []vgpu.UID
	min     int
	most    int
	members int
}

// gangKey reads one argument of a gang.
func (l *line) gangKey(key string, values []string) (err error) {
	number := func() (n int) {
		n, err = strconv.Atoi(values[0])
		return n
	}
	switch g := &l.gang; key {
	case "required":
		g.wishes.Required = values
	case "preferred":
		g.wishes.Preferred = values
	case "losses":
		err = g.lose(values)
	case "placed":
		for _, v := range values {
			g.placed = append(g.placed, vgpu.UID(v))
		}
	case "min":
		g.min = number()
	case "domains":
		g.most = number()
	case "members":
		g.members = number()
	default:
		err = fmt.Errorf("unknown argument %q", key)
	}
	return err
}

// lose reads "rack:20", in thousandths.
func (g *gangLine) lose(values []string) error {
	for _, v := range values {
		key, part, _ := strings.Cut(v, ":")
		n, err := strconv.ParseInt(part, 10, 32)
		if err != nil {
			return err
		}
		g.losses = append(g.losses, gang.Loss{Level: key, Part: vgpu.MilliGPU(n)})
	}
	return nil
}

// labels reads a line per level: "rack n1=r1 n2=r1 n3=r2"; other nodes have no such label.
func (s *Script) labels(l *line) (string, error) {
	s.levels = nil
	for _, text := range strings.Split(strings.TrimSpace(l.input), "\n") {
		words := strings.Fields(text)
		level := gang.Level{Key: words[0]}
		of := map[string]int32{}
		for _, w := range words[1:] {
			node, domain, _ := strings.Cut(w, "=")
			at := slices.Index(level.Names, domain)
			if at < 0 {
				at = len(level.Names)
				level.Names = append(level.Names, domain)
			}
			of[node] = int32(at)
		}
		for _, n := range s.cluster.Nodes() {
			at, labelled := of[n.Name()]
			if !labelled {
				at = -1
			}
			level.Domain = append(level.Domain, at)
		}
		s.levels = append(s.levels, level)
	}
	return fmt.Sprintf("%d levels\n", len(s.levels)), nil
}

// ends reads "a=100 b=200": when pods end.
func (s *Script) endings(l *line) (string, error) {
	s.ends = map[string]int64{}
	for _, w := range strings.Fields(l.input) {
		pod, at, _ := strings.Cut(w, "=")
		n, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			return "", err
		}
		s.ends[pod] = n
	}
	return fmt.Sprintf("%d ends\n", len(s.ends)), nil
}

// together is the cluster with its levels, and one for hosts.
func (s *Script) together() *gang.Cluster {
	c := &gang.Cluster{Nodes: s.cluster.Nodes(), Levels: slices.Clone(s.levels)}
	host := gang.Level{Key: "host"}
	for i, n := range c.Nodes {
		host.Domain, host.Names = append(host.Domain, int32(i)), append(host.Names, n.Name())
	}
	c.Levels = append(c.Levels, host)
	if s.ends != nil {
		c.Ends = func(_ vgpu.UID, pod string) int64 { return s.ends[pod] }
	}
	if s.asked != nil {
		c.Host = func(uid vgpu.UID, _ string) vgpu.Room { return s.asked[uid] }
		c.Hosts = func(node int) vgpu.Room { return s.capacity(c.Nodes[node]) }
	}
	if s.avoided != nil {
		c.Avoids = func(node string) bool { return slices.Contains(s.avoided, node) }
	}
	return c
}

// capacity is the room of a host beside the requests of its pods with devices.
func (s *Script) capacity(n *vgpu.Node) vgpu.Room {
	room := n.Room()
	n.Each(func(a *vgpu.Assignment) { room = room.Plus(s.asked[a.UID]) })
	return room
}

// avoid reads the nodes for whose pods no gang waits: "n1 n2".
func (s *Script) avoid(l *line) (string, error) {
	s.avoided = strings.Fields(l.input)
	return fmt.Sprintf("%d nodes\n", len(s.avoided)), nil
}

// group reads the members, a line for those that are alike: "worker 10 members=4 cpu=2", named after the gang, the role
// and their number. Without such lines the containers and members= of the gang's own line are those of its only role.
func (s *Script) group(l *line) (*gang.Group, error) {
	g := &gang.Group{Name: l.request.Pod, Wishes: l.gang.wishes, Losses: l.gang.losses, MinCount: l.gang.min}
	roles, err := l.roles()
	if err != nil {
		return nil, err
	}
	for _, role := range roles {
		for i := range max(1, role.gang.members) {
			r := role.request
			r.Pod = fmt.Sprintf("%s-%d", role.request.Pod, i)
			r.UID, r.Priority = vgpu.UID(r.Pod), l.request.Priority
			if a := s.assigned(r.UID); slices.Contains(l.gang.placed, r.UID) && a != nil {
				g.Placed = append(g.Placed, *a)
				continue
			}
			g.Members = append(g.Members, gang.Member{Request: r, Rank: len(g.Members)})
		}
	}
	if g.MinCount == 0 {
		g.MinCount = len(g.Members) + len(g.Placed)
	}
	return g, nil
}

// roles returns a line for each role, whose pod has the name of the gang and the role.
func (l *line) roles() ([]*line, error) {
	if strings.TrimSpace(l.input) == "" {
		return []*line{l}, nil
	}
	lines := strings.Split(strings.TrimSpace(l.input), "\n")
	roles := make([]*line, 0, len(lines))
	for _, text := range lines {
		_, args, err := datadriven.ParseLine("member " + text)
		if err != nil {
			return nil, err
		}
		role, err := parseArgs(args)
		if err != nil {
			return nil, err
		}
		role.request.Pod = l.request.Pod + "/" + role.request.Pod
		roles = append(roles, role)
	}
	return roles, nil
}

func (s *Script) assigned(uid vgpu.UID) (found *vgpu.Assignment) {
	for _, n := range s.cluster.Nodes() {
		n.Each(func(a *vgpu.Assignment) {
			if a.UID == uid {
				found = a
			}
		})
	}
	return found
}

// placeGang places a gang and books it.
func (s *Script) placeGang(l *line) (string, error) {
	g, err := s.group(l)
	if err != nil {
		return "", err
	}
	plan, err := gang.Place(s.together(), g, s.gangConfig(l))
	if err != nil {
		return "", err
	}
	for i := range plan.Places {
		a := &plan.Places[i]
		if a.Node == "" {
			continue
		}
		if len(a.Containers) > 0 {
			if err := s.cluster.Add(*a); err != nil {
				return drawPlan(&plan), err
			}
		}
		s.enter(a, g.Members[i].Request.Host)
	}
	return drawPlan(&plan), nil
}

// drainFor says what a gang waits for.
func (s *Script) drainFor(l *line) (string, error) {
	g, err := s.group(l)
	if err != nil {
		return "", err
	}
	plan, err := gang.Drain(s.together(), g, s.gangConfig(l))
	if err != nil {
		return "", err
	}
	out := drawPlan(&plan)
	if plan.Places != nil {
		for _, leaver := range plan.Blockers {
			out += "after " + leaver.Pod + "\n"
		}
		out += fmt.Sprintf("until %d\n", plan.Until)
	}
	return out, nil
}

func (s *Script) gangConfig(l *line) gang.Config {
	return gang.Config{Policy: l.policy.With(s.mix, l.seed), MaxDomains: l.gang.most}
}

// drawPlan writes a line per member with its devices, then the spread; or the refusal.
func drawPlan(plan *gang.Plan) string {
	if plan.Refused != nil {
		return fmt.Sprintf("pends: %v (%s)\n", plan.Refused, plan.Refused.Reason)
	}
	out := ""
	for i := range plan.Places {
		a := &plan.Places[i]
		out += a.Pod + " →"
		if len(a.Containers) == 0 {
			out += " " + a.Node
		}
		for _, c := range a.Containers {
			for _, id := range c.Devices {
				out += " " + string(id)
			}
		}
		out += "\n"
	}
	for _, of := range plan.Spread {
		key := of.Key
		if key == "" {
			key = "nodes"
		}
		out += fmt.Sprintf("%s %d ", key, of.Domains)
	}
	if plan.Stats.Cut {
		out += "(cut)"
	}
	return strings.TrimSpace(out) + "\n"
}
