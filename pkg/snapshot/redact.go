package snapshot

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Other is the namespace of everything whose namespace a reader may not see. The objects in it have names and UIDs of the form
// other:000001, which no object of a cluster can have. One thing has one such name in the whole snapshot, and may have another one
// in the next.
const Other = "other"

// Namespaces returns the namespaces that are named in the snapshot, sorted.
func (s *Snapshot) Namespaces() []string {
	all := map[string]bool{}
	s.visit(func(n *Name) { all[n.Namespace] = true }, func(g *GangName) { all[g.Namespace] = true })
	for i := range s.InferenceFleets {
		all[s.InferenceFleets[i].Namespace] = true
	}
	for i := range s.Pending {
		if r := s.Pending[i].Refused; r != nil && r.Nearest != nil {
			for _, path := range append([]string{r.Nearest.Promised}, r.Nearest.Beside...) {
				all[NameOf(path, "").Namespace] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Redact returns the snapshot for a reader who may see some namespaces only. All amounts stay. The names of pods, containers,
// gangs, workloads, fleets and variants in other namespaces, and these namespaces, are replaced. All sentences are left out, since
// one about a pod may name others.
func (s *Snapshot) Redact(visible func(namespace string) bool) *Snapshot {
	r := redactor{visible: visible, aliases: map[string]string{}, models: s.models()}
	out := s.clone()
	out.Redacted = true
	for i := range out.Nodes {
		for k := range out.Nodes[i].Devices {
			out.Nodes[i].Devices[k].Note = ""
		}
		for k := range out.Nodes[i].Pods {
			r.pod(&out.Nodes[i].Pods[k])
		}
		for k := range out.Nodes[i].Holds {
			r.pod(&out.Nodes[i].Holds[k].Pod)
		}
	}
	for i := range out.Gangs {
		out.Gangs[i].Message = ""
		if g := &out.Gangs[i]; !visible(g.Namespace) {
			// Users write these keys: they may say anything.
			g.RequiredTopology, g.PreferredTopology = nil, nil
		}
	}
	for i := range out.Pending {
		r.pending(&out.Pending[i])
	}
	for i := range out.InferenceFleets {
		r.fleet(&out.InferenceFleets[i])
	}
	out.visit(r.name, r.gang)
	out.Sort()
	return out
}

// redactor replaces names.
type redactor struct {
	visible func(string) bool
	// aliases by what they stand for.
	aliases map[string]string
	// models are those of the devices.
	models map[string]bool
}

// models returns the GPU models that the cluster has.
func (s *Snapshot) models() map[string]bool {
	all := map[string]bool{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Devices {
			all[s.Nodes[i].Devices[k].Model] = true
		}
	}
	return all
}

// alias returns the name that stands for something.
func (r *redactor) alias(kind, of string) string {
	key := kind + " " + of
	if r.aliases[key] == "" {
		r.aliases[key] = fmt.Sprintf("%s:%06d", Other, len(r.aliases)+1)
	}
	return r.aliases[key]
}

// pod replaces what belongs to a hidden pod beside its name and gang.
func (r *redactor) pod(p *Pod) {
	if r.visible(p.Namespace) {
		return
	}
	p.Workload, p.Owners = r.workload(p.Namespace, p.Workload), nil
	for i := range p.Containers {
		p.Containers[i].Name = fmt.Sprintf("%s:%d", Other, i+1)
	}
}

func (r *redactor) workload(namespace, name string) string {
	if name == "" {
		return ""
	}
	return r.alias("workload", namespace+"/"+name)
}

// pending replaces what belongs to a hidden pod that waits, and in all of them what names others.
func (r *redactor) pending(p *Pending) {
	if p.Refused != nil {
		p.Refused.hide()
	}
	if p.Refused != nil && p.Refused.Nearest != nil {
		nearest := p.Refused.Nearest
		for i := range nearest.Beside {
			nearest.Beside[i] = r.path(nearest.Beside[i])
		}
		if nearest.Promised != "" {
			nearest.Promised = r.path(nearest.Promised)
		}
	}
	if r.visible(p.Namespace) {
		return
	}
	p.Workload, p.Owners = r.workload(p.Namespace, p.Workload), nil
	for i := range p.Gates {
		p.Gates[i] = Other
	}
	// Users write the names of models: others than those of the cluster may say anything.
	names := map[string]string{}
	if p.Refused != nil && p.Refused.Nearest != nil {
		p.Refused.Nearest.Allowed = slices.DeleteFunc(slices.Clone(p.Refused.Nearest.Allowed), func(m string) bool { return !r.models[m] })
	}
	if p.Request != nil {
		p.Request.Models = slices.DeleteFunc(slices.Clone(p.Request.Models), func(m ModelRequest) bool { return !r.models[m.Model] })
		for i := range p.Request.Containers {
			c := &p.Request.Containers[i]
			names[c.Name] = fmt.Sprintf("%s:%d", Other, i+1)
			c.Name = names[c.Name]
		}
	}
	if p.Refused != nil && p.Refused.Nearest != nil && p.Refused.Nearest.Container != "" {
		name := &p.Refused.Nearest.Container
		if *name = names[*name]; *name == "" {
			*name = Other
		}
	}
}

// hide leaves the sentences out.
func (r *Refused) hide() {
	if r.Message = ""; r.Illegal != "" {
		r.Illegal = Other
	}
}

// path replaces "namespace/name".
func (r *redactor) path(path string) string {
	if n := NameOf(path, ""); r.visible(n.Namespace) {
		return path
	}
	return Other
}

func (r *redactor) fleet(f *InferenceFleet) {
	if r.visible(f.Namespace) {
		return
	}
	f.Name, f.Namespace = r.alias("fleet", f.Namespace+"/"+f.Name), Other
	for i := range f.Variants {
		v := &f.Variants[i]
		if v.Name = fmt.Sprintf("%s:%d", Other, i+1); !r.models[v.Model] { // users write these too
			v.Model = ""
		}
	}
}

func (r *redactor) name(n *Name) {
	if !r.visible(n.Namespace) {
		alias := r.alias("pod", string(n.UID))
		*n = Name{Other, alias, vgpu.UID(alias)}
	}
}

func (r *redactor) gang(g *GangName) {
	if !r.visible(g.Namespace) {
		*g = GangName{g.Source, Other, r.alias("gang", fmt.Sprint(*g))}
	}
}

// visit calls a function for each name of a pod, and one for each name of a gang.
func (s *Snapshot) visit(pod func(*Name), gang func(*GangName)) {
	mayGang := func(g *GangName) {
		if g != nil {
			gang(g)
		}
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			pod(&s.Nodes[i].Pods[k].Name)
			mayGang(s.Nodes[i].Pods[k].Gang)
		}
		for k := range s.Nodes[i].Overbooked {
			pod(&s.Nodes[i].Overbooked[k].Name)
		}
		for k := range s.Nodes[i].Holds {
			pod(&s.Nodes[i].Holds[k].Name)
			mayGang(s.Nodes[i].Holds[k].Gang)
		}
	}
	for i := range s.Gangs {
		gang(&s.Gangs[i].GangName)
		if to := s.Gangs[i].GivesWay; to != nil {
			gang(&to.Gang)
		}
		for k := range s.Gangs[i].Places {
			pod(&s.Gangs[i].Places[k].Name)
		}
	}
	for i := range s.Preemptions {
		if p := s.Preemptions[i].Pod; p != nil {
			pod(p)
		}
		mayGang(s.Preemptions[i].Gang)
		for k := range s.Preemptions[i].Victims {
			pod(&s.Preemptions[i].Victims[k].Name)
		}
	}
	for i := range s.Pending {
		pod(&s.Pending[i].Name)
		mayGang(s.Pending[i].Gang)
	}
	for i := range s.ElasticTargets {
		gang(&s.ElasticTargets[i].GangName)
	}
}
