package testkit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Parse reads a drawing.
func Parse(drawing string) (*vgpu.Cluster, error) {
	p := &parser{models: map[string]Model{}, devices: map[string][]vgpu.Device{}, rooms: map[string]vgpu.Room{}}
	for _, m := range []Model{A100, H100, V100, T4} {
		p.models[m.Name] = m
	}
	for number, line := range strings.Split(drawing, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
	}
	return p.cluster()
}

// parser collects devices and owners until it knows all links.
type parser struct {
	models  map[string]Model
	devices map[string][]vgpu.Device
	rooms   map[string]vgpu.Room
	owners  []owner
}

// owner is one share in a drawing; hold for those in parentheses.
type owner struct {
	node     string
	index    int
	pod      string
	share    vgpu.ContainerRequest
	hold     bool
	priority int32
}

func (p *parser) line(line string) error {
	if rest, ok := strings.CutPrefix(line, "model "); ok {
		return p.model(strings.Fields(rest))
	}
	name, rest, ok := strings.Cut(line, ":")
	if !ok {
		return errors.New(`want "node: devices", "model …" or "links node: …"`)
	}
	if node, ok := strings.CutPrefix(name, "links "); ok {
		return p.links(strings.TrimSpace(node), strings.Fields(strings.ReplaceAll(rest, ",", " ")))
	}
	head := strings.Fields(name)
	if len(head) == 0 {
		return errors.New("a node has a name")
	}
	name = head[0]
	if p.devices[name] != nil {
		return fmt.Errorf("node %s is drawn twice", name)
	}
	room, err := parseRoom(head[1:])
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	p.rooms[name] = room
	p.devices[name] = []vgpu.Device{}
	if strings.TrimSpace(rest) == "" {
		return nil
	}
	for _, d := range strings.Split(rest, "|") {
		if err := p.device(name, strings.TrimSpace(d)); err != nil {
			return fmt.Errorf("node %s: device %q: %w", name, strings.TrimSpace(d), err)
		}
	}
	return nil
}

// model reads "A100 slots=10 memory=40Gi contexts=48".
func (p *parser) model(words []string) error {
	if len(words) == 0 {
		return errors.New("a model has a name")
	}
	m := p.models[words[0]]
	m.Name = words[0]
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		n, err := ParseBytes(value)
		if err != nil {
			return fmt.Errorf("model %s: %s: %w", m.Name, key, err)
		}
		switch key {
		case "slots":
			m.Slots = vgpu.Slots(n)
		case "contexts":
			m.Contexts = int(n)
		case "memory":
			m.Memory = n
		default:
			return fmt.Errorf("model %s: unknown key %q", m.Name, key)
		}
	}
	p.models[m.Name] = m
	return nil
}

// device reads "g0 A100 80Gi sick [a:5 b:2/8Gi] (c:3@100)"; all after the model is optional.
func (p *parser) device(node, text string) error {
	head, owners := text, ""
	if i := strings.IndexAny(text, "[("); i >= 0 {
		head, owners = text[:i], text[i:]
	}
	words := strings.Fields(head)
	if len(words) < 2 {
		return errors.New("want an index and a model")
	}
	index, err := parseIndex(words[0])
	if err != nil {
		return err
	}
	m, ok := p.models[words[1]]
	if !ok {
		return fmt.Errorf("unknown model %s", words[1])
	}
	d := m.Device(node, index)
	for _, w := range words[2:] {
		if w == "sick" {
			d.Healthy = false
			continue
		}
		if d.Memory, err = ParseBytes(w); err != nil {
			return err
		}
	}
	p.devices[node] = append(p.devices[node], d)
	return p.groups(node, index, owners)
}

// groups reads the brackets and parentheses of a device.
func (p *parser) groups(node string, index int, text string) error {
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		hold, end := text[0] == '(', "]"
		if hold {
			end = ")"
		}
		inner, rest, closed := strings.Cut(text[1:], end)
		if !closed || (!hold && text[0] != '[') {
			return fmt.Errorf("want [owners] and (holds) in %q", text)
		}
		for _, w := range strings.Fields(strings.ReplaceAll(inner, ",", " ")) {
			o, err := parseOwner(w, hold)
			if err != nil {
				return fmt.Errorf("owner %q: %w", w, err)
			}
			o.node, o.index = node, index
			p.owners = append(p.owners, o)
		}
		text = rest
	}
	return nil
}

// parseOwner reads "pod:share", and for holds "pod:share@priority".
func parseOwner(w string, hold bool) (o owner, err error) {
	o.hold = hold
	if hold {
		var priority string
		w, priority, _ = strings.Cut(w, "@")
		if priority != "" {
			n, err := strconv.ParseInt(priority, 10, 32)
			if err != nil {
				return o, err
			}
			o.priority = int32(n)
		}
	}
	pod, share, _ := strings.Cut(w, ":")
	o.pod = pod
	o.share, err = parseShare(share)
	return o, err
}

// links reads "g0-g1" with a class such as NV12, PIX or SYS, in turn.
func (p *parser) links(node string, words []string) error {
	devices := p.devices[node]
	for i := 0; i+1 < len(words); i += 2 {
		link, err := parseLink(words[i+1])
		if err != nil {
			return err
		}
		a, b, _ := strings.Cut(words[i], "-")
		from, err := parseIndex(a)
		if err != nil {
			return err
		}
		to, err := parseIndex(b)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(devices, func(d vgpu.Device) bool { return d.Index == from })
		if at < 0 {
			return fmt.Errorf("link from unknown device g%d of node %q", from, node)
		}
		link.Peer = DeviceID(node, to)
		devices[at].Links = append(devices[at].Links, link)
	}
	return nil
}

// classes names the classes of links as drawings do.
var classes = map[string]vgpu.LinkClass{
	"SYS": vgpu.LinkSYS, "NODE": vgpu.LinkNODE, "PHB": vgpu.LinkPHB, "PXB": vgpu.LinkPXB, "PIX": vgpu.LinkPIX,
}

func parseLink(w string) (vgpu.Link, error) {
	if class, ok := classes[w]; ok {
		return vgpu.Link{Class: class}, nil
	}
	lanes, err := strconv.Atoi(strings.TrimPrefix(w, "NV"))
	if err != nil {
		return vgpu.Link{}, fmt.Errorf("unknown link %q", w)
	}
	return vgpu.Link{Class: vgpu.LinkNVLink, Lanes: lanes}, nil
}

func parseIndex(w string) (int, error) {
	i, err := strconv.Atoi(strings.TrimPrefix(w, "g"))
	if err != nil || !strings.HasPrefix(w, "g") {
		return 0, fmt.Errorf("want a device such as g0, not %q", w)
	}
	return i, nil
}

// ParseBytes reads an amount such as "8Gi", "8G" (the same), "512Mi" or "7".
func ParseBytes(w string) (vgpu.Bytes, error) {
	units := []struct {
		suffix string
		unit   vgpu.Bytes
	}{{"Gi", vgpu.GiB}, {"G", vgpu.GiB}, {"Mi", vgpu.MiB}, {"Ki", vgpu.KiB}, {"", 1}}
	for _, u := range units {
		if digits, ok := strings.CutSuffix(w, u.suffix); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read memory %q: %w", w, err)
			}
			return vgpu.Bytes(n) * u.unit, nil
		}
	}
	return 0, nil // the empty suffix always matches
}

// cluster builds the cluster of the drawing.
func (p *parser) cluster() (*vgpu.Cluster, error) {
	nodes := make([]*vgpu.Node, 0, len(p.devices))
	for _, name := range slices.Sorted(maps.Keys(p.devices)) {
		n, err := vgpu.NewNode(name, p.devices[name])
		if err != nil {
			return nil, err
		}
		n.SetRoom(p.rooms[name])
		nodes = append(nodes, n)
	}
	c, err := vgpu.NewCluster(nodes...)
	if err != nil {
		return nil, err
	}
	return c, p.book(c)
}

// book adds the owners, those of one pod on one node as the containers of one assignment.
func (p *parser) book(c *vgpu.Cluster) error {
	type place struct {
		hold      bool
		node, pod string
	}
	var order []place
	all := map[place]*vgpu.Hold{}
	for _, o := range p.owners {
		key := place{o.hold, o.node, o.pod}
		h := all[key]
		if h == nil {
			h = &vgpu.Hold{Assignment: vgpu.Assignment{UID: vgpu.UID(o.pod), Pod: o.pod, Node: o.node}, Priority: o.priority}
			all[key], order = h, append(order, key)
		}
		n := c.Node(o.node)
		d := &n.Devices()[n.Index(DeviceID(o.node, o.index))]
		share, refusal := o.share.On(d, 0, 0)
		if refusal != nil || share.Devices != 1 {
			return fmt.Errorf("draw pod %s: %d slots and %v are no share of device %s", o.pod, o.share.Slots, o.share.Memory, d.ID)
		}
		h.Containers = append(h.Containers, vgpu.ContainerAssignment{
			Name: fmt.Sprintf("c%d", len(h.Containers)), Kind: o.share.Kind, Devices: []vgpu.DeviceID{d.ID}, Share: share,
		})
	}
	for _, key := range order {
		book := c.Hold
		if !key.hold {
			book = func(h vgpu.Hold) error { return c.Add(h.Assignment) }
		}
		if err := book(*all[key]); err != nil {
			return err
		}
	}
	return nil
}
