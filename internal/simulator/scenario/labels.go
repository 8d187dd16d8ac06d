package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxLabels bounds the labels of a group.
const maxLabels = 32

// labels reads the labels of the nodes of a group.
func (r *reader) labels(path string, g *groupFile, nodes []*vgpu.Node) {
	if n := len(g.Labels) + len(g.Domains); n > maxLabels {
		r.wrong(path+".labels", fmt.Sprintf("%d labels and domains", n), fmt.Sprintf("at most %d", maxLabels))
		return
	}
	all := map[string]func(node int) string{}
	for _, key := range slices.Sorted(maps.Keys(g.Labels)) {
		value := string(g.Labels[key])
		r.labelKey(path+".labels", scalar(key))
		if len(validation.IsValidLabelValue(value)) > 0 || value == "" {
			r.wrong(path+".labels."+key, quote(g.Labels[key]), "the value of a node label")
		}
		all[key] = func(int) string { return value }
	}
	for i := range g.Domains {
		d, at := &g.Domains[i], at(path+".domains", i)
		key := r.labelKey(at+".label", d.Label)
		if all[key] != nil {
			r.wrong(at+".label", quote(d.Label), "a label that the group does not have yet")
		}
		size := int(r.whole(at+".nodes", d.Nodes, 1, int64(max(1, len(nodes)))))
		all[key] = domains(string(g.Name), key, size, len(nodes))
	}
	if r.err != nil {
		return
	}
	for i, n := range nodes {
		r.label(n, i, all)
	}
}

// label notes the labels of node i of a group.
func (r *reader) label(n *vgpu.Node, i int, all map[string]func(node int) string) {
	if len(all) == 0 {
		return
	}
	own := make(map[string]string, len(all))
	for key, value := range all {
		own[key] = value(i)
	}
	r.nodeLabels[n.Name()] = own
}

// domains names domains of so many nodes each, side by side: a100-rack-1 for the first of the group a100 by the label
// example.com/rack.
func domains(group, key string, size, nodes int) func(node int) string {
	short := key[strings.LastIndex(key, "/")+1:]
	digits := len(fmt.Sprint((nodes + size - 1) / size))
	return func(node int) string { return fmt.Sprintf("%s-%s-%0*d", group, short, digits, node/size+1) }
}

// labelKey reads the key of a label that is not the one that each node has.
func (r *reader) labelKey(path string, s scalar) string {
	if len(validation.IsQualifiedName(string(s))) > 0 || len(s) > maxQuote {
		r.wrong(path, quote(s), "the key of a node label such as topology.kubernetes.io/zone")
	}
	if string(s) == sim.Hostname {
		r.wrong(path, quote(s), "another label: this one is the name of the node")
	}
	return string(s)
}

// levelsOf returns the keys of the labels that nodes have, sorted.
func levelsOf(labels map[string]map[string]string) []string {
	keys := map[string]bool{sim.Hostname: true}
	for _, own := range labels {
		for key := range own {
			keys[key] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// known returns the levels that gangs may wish for.
func (r *reader) known(nodes []*vgpu.Node) []string {
	all := levelsOf(r.nodeLabels)
	if len(modelsOf(nodes)) > 0 {
		all = append(all, gang.NVLink)
	}
	return all
}

// levels reads an ordered list of levels, each once and known.
func (r *reader) levels(path string, list []scalar, known []string) []string {
	all := make([]string, 0, len(list))
	for i, s := range list {
		if !contains(known, string(s)) {
			r.wrong(at(path, i), quote(s), "a label of the nodes, or nvlink: "+strings.Join(known, ", "))
		}
		if contains(all, string(s)) {
			r.wrong(at(path, i), quote(s), "each level once")
		}
		all = append(all, string(s))
	}
	return all
}

// island joins GPUs side by side by NVLink, so many each.
func island(devices []vgpu.Device, size int) {
	for i := range devices {
		for k := i / size * size; k < min(len(devices), (i/size+1)*size); k++ {
			if k != i {
				devices[i].Links = append(devices[i].Links, vgpu.Link{Peer: devices[k].ID, Class: vgpu.LinkNVLink, Lanes: 1})
			}
		}
	}
}
