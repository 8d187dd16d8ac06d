package snapshot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Anonymous returns the snapshot for people who are not to learn any name of the cluster: for a bug report. Amounts, times, GPU models,
// common kinds of owners and words of Tandem stay. Names of nodes, devices, namespaces, pods, owners, containers, gangs, workloads, scheduling gates, fleets and
// variants, and UIDs, are replaced: node-1, gpu-1, team-1 and so on. One thing has one such name in the whole snapshot, and the new names have the order of the
// old ones, so that decisions end ties in the same way; only the placement policy "random", which goes by the names themselves, may choose others.
// The order of pods is that of their namespaces, then of the lengths of their names, so that w-10 stays behind w-2.
//
// Sentences about pods and gangs are left out, and Redacted says so. A sentence about nodes, or a word, in which a name of the snapshot
// occurs is replaced too.
func (s *Snapshot) Anonymous() *Snapshot {
	out := s.clone()
	out.Redacted = true
	a := &anonymizer{names: map[kind]map[string]string{}, models: s.models()}
	a.walk(out) // notes the names, and changes nothing
	a.number()
	a.walk(out)
	out.Sort()
	return out
}

// kind is what a name is one of, and the begin of the new name.
type kind string

const (
	aNode      kind = "node"
	aDevice    kind = "gpu"
	aUID       kind = "uid"
	aNamespace kind = "team"
	aPod       kind = "pod"
	aContainer kind = "container"
	aGang      kind = "gang"
	aWorkload  kind = "profile"
	aFleet     kind = "fleet"
	aVariant   kind = "variant"
	anOwner    kind = "owner"
	aKind      kind = "kind"
	aGate      kind = "gate"
	aPlace     kind = "place"
	aModel     kind = "model"
	aText      kind = "text"
)

// anonymizer replaces names.
type anonymizer struct {
	// names has the new names by the old ones. While they are noted, the new ones are "".
	names map[kind]map[string]string
	ready bool
	// models are those of the devices: they stay.
	models map[string]bool
	// known are all old names.
	known map[string]bool
}

// separator stands between the parts of the key of a name. It sorts before all letters of names.
const separator = "\x00"

// name notes a name, or replaces it. Parts that come before are what the name is in.
func (a *anonymizer) name(k kind, name *string, in ...string) {
	if *name == "" {
		return
	}
	key := strings.Join(append(in, *name), separator)
	if a.ready {
		*name = a.names[k][key]
		return
	}
	if a.names[k] == nil {
		a.names[k] = map[string]string{}
	}
	a.names[k][key] = ""
}

// number gives all names that were noted their new ones, in the order of the old ones.
func (a *anonymizer) number() {
	a.known = map[string]bool{}
	for k, names := range a.names {
		sorted := slices.Sorted(maps.Keys(names))
		if k == aPod {
			slices.SortFunc(sorted, comparePods)
		}
		width := len(fmt.Sprint(len(sorted)))
		for i, key := range sorted {
			names[key] = fmt.Sprintf("%s-%0*d", k, width, i+1)
			if k != aText {
				a.known[key[strings.LastIndex(key, separator)+1:]] = true
			}
		}
	}
	a.ready = true
}

// comparePods orders the keys of pods: by namespace, then by the lengths of the names, then by the names.
func comparePods(a, b string) int {
	ns, name, _ := strings.Cut(a, separator)
	other, otherName, _ := strings.Cut(b, separator)
	return cmp.Or(cmp.Compare(ns, other), cmp.Compare(len(name), len(otherName)), cmp.Compare(name, otherName))
}

// text replaces a sentence, or a word, in which a name occurs. Its new form has a space, since readers take one word for that of a plugin.
func (a *anonymizer) text(text *string) {
	words := strings.FieldsFunc(*text, func(r rune) bool { return strings.ContainsRune(" ,;:()[]{}\"'/=", r) })
	named := func(word string) bool { return a.known[word] || a.known[strings.TrimRight(word, ".")] }
	if a.ready && !slices.ContainsFunc(words, named) {
		return
	}
	if a.name(aText, text); a.ready {
		*text = strings.Replace(*text, "-", " ", 1)
	}
}

// pod replaces the name of a pod. Those whose namespace is hidden have no other names.
func (a *anonymizer) pod(n *Name) {
	uid := string(n.UID)
	a.name(aUID, &uid)
	n.UID = vgpu.UID(uid)
	if isHidden(n.Namespace, n.Name) {
		return
	}
	a.name(aPod, &n.Name, n.Namespace)
	a.name(aNamespace, &n.Namespace)
}

// isHidden reports whether a name is one that Redact gave: a namespace may be called Other by its users too.
func isHidden(namespace, name string) bool {
	return namespace == Other && strings.HasPrefix(name, Other+":")
}

func (a *anonymizer) gang(g *GangName) {
	if isHidden(g.Namespace, g.Name) {
		return
	}
	a.name(aGang, &g.Name, g.Namespace, g.Source)
	a.name(aNamespace, &g.Namespace)
}

func (a *anonymizer) device(id *vgpu.DeviceID) {
	name := string(*id)
	a.name(aDevice, &name)
	*id = vgpu.DeviceID(name)
}

// path replaces "namespace/name".
func (a *anonymizer) path(path *string) {
	if *path == "" || *path == Other {
		return
	}
	n := NameOf(*path, "")
	a.pod(&n)
	*path = n.Path()
}

// walk shows each name of a snapshot to the anonymizer.
func (a *anonymizer) walk(s *Snapshot) {
	for i := range s.Nodes {
		a.node(&s.Nodes[i])
	}
	for i := range s.Gangs {
		g := &s.Gangs[i]
		g.Message = ""
		a.text(&g.Reason)
		a.places(g.Places)
		g.RequiredTopology, g.PreferredTopology = s.keysOfNodes(g.RequiredTopology), s.keysOfNodes(g.PreferredTopology)
	}
	for i := range s.Preemptions {
		a.places(s.Preemptions[i].Victims)
	}
	for i := range s.Pending {
		a.pending(&s.Pending[i])
	}
	for i := range s.ElasticTargets {
		a.text(&s.ElasticTargets[i].Reason)
	}
	for i := range s.InferenceFleets {
		a.fleet(&s.InferenceFleets[i])
	}
	s.visit(a.pod, a.gang)
}

func (a *anonymizer) places(places []Place) {
	for i := range places {
		a.name(aNode, &places[i].Node)
	}
}

func (a *anonymizer) node(n *Node) {
	a.name(aNode, &n.Name)
	a.text(&n.Problem)
	a.topology(n)
	n.Devices = each(n.Devices, func(d *Device) {
		a.device(&d.ID)
		a.text(&d.Reason)
		d.Note = ""
	})
	n.Overbooked = each(n.Overbooked, func(o *Overbooked) { o.Devices = each(o.Devices, a.device) })
	for i := range n.Pods {
		a.shares(&n.Pods[i])
	}
	for i := range n.Holds {
		a.shares(&n.Holds[i].Pod)
	}
}

// keysOfNodes returns the keys of labels that a node has. Users write the keys of their gangs: the others may say anything.
func (s *Snapshot) keysOfNodes(keys []string) (of []string) {
	for _, key := range keys {
		has := func(n Node) bool { return n.Topology[key] != "" }
		if slices.ContainsFunc(s.Nodes, has) {
			of = append(of, key)
		}
	}
	return of
}

// topology replaces the values of the labels of a node. The keys stay.
func (a *anonymizer) topology(n *Node) {
	replaced := TopologyOf(n.Topology)
	for key, value := range replaced {
		a.name(aPlace, &value, key)
		replaced[key] = value
	}
	n.Topology = replaced
}

// shares replaces what a pod on a node names beside itself.
func (a *anonymizer) shares(p *Pod) {
	a.workload(p.Namespace, &p.Workload)
	p.Owners = each(p.Owners, func(owner *string) { a.owner(p.Namespace, owner) })
	for i := range p.Containers {
		c := &p.Containers[i]
		a.name(aContainer, &c.Name)
		c.Devices = each(c.Devices, a.device)
	}
	p.On = each(p.On, func(on *On) { a.device(&on.Device) })
}

func (a *anonymizer) workload(namespace string, name *string) {
	if !isHidden(namespace, *name) {
		a.name(aWorkload, name, namespace)
	}
}

// commonKinds are the kinds of owners that say nothing about who has them.
var commonKinds = []string{
	"DaemonSet", "Job", "JobSet", "LeaderWorkerSet", "MPIJob", "Notebook", "PyTorchJob", "RayCluster", "RayJob", "ReplicaSet", "ReplicationController",
	"StatefulSet", "TFJob", "TrainJob",
}

// owner replaces the name in "Kind/name", and a kind that is not common: it may be the name of a company's own.
func (a *anonymizer) owner(namespace string, owner *string) {
	kind, name, _ := strings.Cut(*owner, "/")
	a.name(anOwner, &name, namespace, kind)
	if !slices.Contains(commonKinds, kind) {
		a.name(aKind, &kind)
	}
	*owner = kind + "/" + name
}

func (a *anonymizer) pending(p *Pending) {
	a.workload(p.Namespace, &p.Workload)
	p.Owners = each(p.Owners, func(owner *string) { a.owner(p.Namespace, owner) })
	for i := range p.Gates {
		a.name(aGate, &p.Gates[i])
	}
	if p.Request != nil {
		for i := range p.Request.Containers {
			a.name(aContainer, &p.Request.Containers[i].Name)
		}
		p.Request.Models = each(p.Request.Models, func(m *ModelRequest) { a.model(&m.Model) })
	}
	r := p.Refused
	if r == nil {
		return
	}
	r.hide()
	r.Nodes = each(r.Nodes, func(n *RefusedNodes) { a.text(&n.Reason) })
	slices.SortFunc(r.Nodes, func(x, y RefusedNodes) int { return cmp.Compare(x.Reason, y.Reason) })
	if n := r.Nearest; n != nil {
		n.Allowed = each(n.Allowed, a.model)
		a.name(aContainer, &n.Container)
		a.name(aNode, &n.Node)
		a.path(&n.Promised)
		for i := range n.Beside {
			a.path(&n.Beside[i])
		}
	}
}

// model replaces the name of a GPU model that no device has: users write these.
func (a *anonymizer) model(name *string) {
	if !a.models[*name] {
		a.name(aModel, name)
	}
}

func (a *anonymizer) fleet(f *InferenceFleet) {
	a.text(&f.Reason)
	for i := range f.Variants {
		a.name(aVariant, &f.Variants[i].Name)
		a.model(&f.Variants[i].Model)
	}
	if isHidden(f.Namespace, f.Name) {
		return
	}
	a.name(aFleet, &f.Name, f.Namespace)
	a.name(aNamespace, &f.Namespace)
}
