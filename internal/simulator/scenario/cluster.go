package scenario

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// cluster reads the nodes. The groups give them names such as a100-07.
func (r *reader) cluster(f *clusterFile) []*vgpu.Node {
	switch {
	case len(f.Groups) == 0 && f.Trace == nil:
		r.wrong("cluster", "no nodes", "groups of nodes or a trace")
		return nil
	case len(f.Groups) > 0 && f.Trace != nil:
		r.wrong("cluster", "groups and a trace", "one of them")
		return nil
	case f.Trace != nil:
		return r.nodesOfTrace("cluster.trace", f.Trace)
	}
	var nodes []*vgpu.Node
	devices := 0
	taken, byName := map[scalar]string{}, map[string]string{}
	for i := range f.Groups {
		path := at("cluster.groups", i)
		for _, n := range r.group(path, &f.Groups[i], taken, maxNodes-len(nodes), &devices) {
			if other := byName[n.Name()]; other != "" {
				r.wrong(path+".name", "the node "+n.Name(), "nodes that "+other+" does not have")
			}
			byName[n.Name()] = path
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// group reads the nodes of a group; left bounds their number.
func (r *reader) group(path string, g *groupFile, taken map[scalar]string, left int, devices *int) []*vgpu.Node {
	name := r.name(path+".name", g.Name, taken)
	count := int(r.whole(path+".count", g.Count, 1, int64(max(1, left))))
	gpus := int(r.whole(path+".gpus", g.GPUs, 0, maxDevices))
	if g.CPU == "" || g.Memory == "" {
		r.wrong(path, "no cpu or no memory", "both, so that it is known how many pods the hosts have room for")
	}
	room := vgpu.Room{MilliCPU: r.cpu(path+".cpu", g.CPU), Memory: r.memory(path+".memory", g.Memory)}
	if *devices += count * gpus; *devices > maxTotal {
		r.wrong(path+".count", fmt.Sprintf("%d GPUs up to here", *devices), fmt.Sprintf("at most %d in all groups", maxTotal))
	}
	d := r.device(path, g, gpus)
	linked := int(r.wholeOr(1, path+".nvlink", g.NVLink, 2, int64(max(2, gpus))))
	if r.err != nil {
		return nil
	}
	nodes := make([]*vgpu.Node, 0, count)
	for i := range count {
		n, err := newNode(fmt.Sprintf("%s-%0*d", name, len(fmt.Sprint(count)), i+1), d, gpus, linked)
		if err != nil {
			r.wrong(path, err.Error(), "a node that can be")
			return nil
		}
		n.SetRoom(room)
		nodes = append(nodes, n)
	}
	r.labels(path, g, nodes)
	return nodes
}

// device reads the devices of a group, which are all alike.
func (r *reader) device(path string, g *groupFile, gpus int) vgpu.Device {
	if gpus == 0 {
		for _, f := range []struct {
			name string
			s    scalar
		}{{".model", g.Model}, {".slots", g.Slots}, {".device_memory", g.DeviceMemory}, {".nvlink", g.NVLink}} {
			if f.s != "" {
				r.wrong(path+f.name, quote(f.s), "nothing, since the nodes have no gpus")
			}
		}
		return vgpu.Device{}
	}
	if g.Model == "" || strings.ContainsAny(string(g.Model), "|,{}[]") || len(g.Model) > maxQuote {
		r.wrong(path+".model", quote(g.Model), "the name of a GPU model such as A100")
	}
	d := vgpu.Device{Model: string(g.Model), Healthy: true}
	d.Slots = vgpu.Slots(r.wholeOr(10, path+".slots", g.Slots, 1, maxSlots))
	if d.Memory = r.memory(path+".device_memory", g.DeviceMemory); d.Memory == 0 {
		r.wrong(path+".device_memory", quote(g.DeviceMemory), "the memory of a GPU such as 40Gi")
	}
	return d
}

// newNode returns a node with devices that are alike, of which so many side by side are linked.
func newNode(name string, d vgpu.Device, gpus, linked int) (*vgpu.Node, error) {
	devices := make([]vgpu.Device, 0, gpus)
	for i := range gpus {
		d.Index, d.ID = i, vgpu.DeviceID(fmt.Sprintf("%s/g%d", name, i))
		devices = append(devices, d)
	}
	island(devices, linked)
	return vgpu.NewNode(name, devices)
}

// modelsOf lists the models of the nodes, sorted.
func modelsOf(nodes []*vgpu.Node) []string {
	offers := vgpu.Offers(nodes)
	all := make([]string, 0, len(offers))
	for _, o := range offers {
		all = append(all, o.Device.Model)
	}
	return slices.Compact(all)
}

// distinct returns one node for all that are alike.
func distinct(nodes []*vgpu.Node) []*vgpu.Node {
	var some []*vgpu.Node
	seen := map[string]bool{}
	for _, n := range nodes {
		key := n.Room().String()
		for i := range n.Devices() {
			key += fmt.Sprintf(" %v", n.Devices()[i].Shape())
		}
		if !seen[key] {
			seen[key] = true
			some = append(some, n)
		}
	}
	return some
}

func contains(list []string, s string) bool { return slices.Contains(list, s) }

func orNone(list []string) string {
	if len(list) == 0 {
		return "it has none"
	}
	return strings.Join(list, ", ")
}
