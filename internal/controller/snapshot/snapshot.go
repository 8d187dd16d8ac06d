package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Objects are what a snapshot is made from. Nobody modifies them.
type Objects struct {
	Nodes    []*v1.Node
	GPUNodes []*v1alpha1.GPUNode
	// Pods that have not ended.
	Pods []*v1.Pod
	// At is the time of the snapshot.
	At time.Time
}

// overdue is how long a member that the controller has given up may take to end beyond its grace period. After that time
// something is wrong, and the end is unknown.
const overdue = time.Minute

// Cluster is a snapshot.
type Cluster struct {
	gang.Cluster
	// Infos are the nodes of gang.Cluster, in the same order.
	Infos []*v1.Node

	placed map[types.UID]vgpu.Assignment
	hosts  map[types.UID]vgpu.Room // what the placed pods request of their hosts
	pods   []int                   // the number of pods on each node
	kinds  []kind
	labels map[string]bool // the keys of the labels of nodes
}

// kind is pods that the same nodes take.
type kind struct {
	pod    *v1.Pod
	demand admission.Demand
}

// Reader makes snapshots, and remembers what it has read of pods. The zero value is ready. Only one goroutine uses it.
type Reader struct {
	read map[types.UID]reading
}

// reading is what a pod's annotation and requests say.
type reading struct {
	version    string
	assignment vgpu.Assignment
	err        error
	host       vgpu.Room
	// slots says that the pod's requests are legal, so that it may have devices although nothing says which.
	slots bool
}

// Read returns a snapshot of the cluster.
func (r *Reader) Read(o Objects) *Cluster {
	c := &Cluster{placed: map[types.UID]vgpu.Assignment{}, hosts: map[types.UID]vgpu.Room{}}
	at := c.addNodes(o)
	c.pods = make([]int, len(c.Infos))
	read := make(map[types.UID]reading, len(r.read))
	rooms := make([]vgpu.Room, len(c.Infos))
	for i, n := range c.Infos {
		rooms[i] = allocatable(n)
	}
	shares := make([][]share, len(c.Infos))
	for _, pod := range o.Pods {
		i, here := at[pod.Spec.NodeName]
		if !here || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed || ending(pod, o.At) {
			continue
		}
		is := r.of(pod)
		read[pod.UID] = is
		c.pods[i]++
		rooms[i] = rooms[i].Less(is.host)
		if kube.WantsVGPU(pod) {
			shares[i] = append(shares[i], share{pod.UID, is})
		}
	}
	for i := range c.Nodes {
		c.enter(i, shares[i])
		c.Nodes[i].SetRoom(rooms[i])
	}
	r.read = read
	c.bind()
	return c
}

// share is what a pod on a node has of its devices.
type share struct {
	uid types.UID
	reading
}

// enter adds the shares of a node's pods to its ledger, in the order of their UIDs, as the scheduler does. A share that does not fit belongs to a
// pod that may run all the same: the devices that it names take no new pod. If a pod does not say which devices it has, the node takes none, as
// the scheduler keeps gangs off such a node.
func (c *Cluster) enter(node int, shares []share) {
	slices.SortFunc(shares, func(a, b share) int { return strings.Compare(string(a.uid), string(b.uid)) })
	ledger, unknown, blocked := c.Nodes[node], false, map[vgpu.DeviceID]bool{}
	for _, s := range shares {
		switch {
		case s.err != nil:
			unknown = unknown || s.slots
		case ledger.Add(s.assignment) == nil:
			c.placed[s.uid], c.hosts[s.uid] = s.assignment, s.host
		default:
			for i := range s.assignment.Containers {
				for _, id := range s.assignment.Containers[i].Devices {
					blocked[id] = true
				}
			}
		}
	}
	if unknown || len(blocked) > 0 {
		c.Nodes[node] = ledger.Only(func(device int) bool { return !unknown && !blocked[ledger.Devices()[device].ID] })
	}
}

// bind gives gang.Cluster the rules of this cluster.
func (c *Cluster) bind() {
	c.Admits, c.Bars = c.admits, c.bars
	c.Hosts = func(node int) vgpu.Room { return allocatable(c.Infos[node]) }
}

// ending reports whether a pod is about to end, and its devices count as free: a pod that waits for them gets them soon. If that is uncertain, they
// do not, as in the scheduler. A member that the controller has given up counts as gone however long its grace period is, and until it is overdue:
// else the controller would give up another one in each pass.
func ending(pod *v1.Pod, now time.Time) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	return !victims.Lingers(pod, now) || pod.Annotations[v1alpha1.AnnotationLeaving] != "" && now.Sub(pod.DeletionTimestamp.Time) < overdue
}

// Remove takes a pod out of the ledgers: it is to leave, and its room counts as free.
func (c *Cluster) Remove(pod *v1.Pod) {
	a, has := c.placed[pod.UID]
	if !has {
		return
	}
	delete(c.placed, pod.UID)
	i := slices.IndexFunc(c.Nodes, func(n *vgpu.Node) bool { return n.Name() == a.Node })
	c.Nodes[i].Remove(a.UID)
	c.Nodes[i].SetRoom(c.Nodes[i].Room().Plus(c.hosts[pod.UID]))
	c.pods[i]--
}

// Without returns the cluster as it is once these pods have left it. The receiver does not change.
func (c *Cluster) Without(pods []*v1.Pod) *Cluster {
	out := *c
	out.Nodes, out.pods, out.placed = slices.Clone(c.Nodes), slices.Clone(c.pods), maps.Clone(c.placed)
	out.bind()
	leaving := map[int][]*v1.Pod{}
	for _, pod := range pods {
		if i := c.nodeOf(pod.UID); i >= 0 {
			leaving[i] = append(leaving[i], pod)
			delete(out.placed, pod.UID)
		}
	}
	for i, left := range leaving {
		n := c.Nodes[i].Without(func(h *vgpu.Hold, held bool) bool {
			return !held && slices.ContainsFunc(left, func(p *v1.Pod) bool { return vgpu.UID(p.UID) == h.UID })
		})
		room := n.Room()
		for _, pod := range left {
			room = room.Plus(c.hosts[pod.UID])
		}
		n.SetRoom(room)
		out.Nodes[i] = n
		out.pods[i] -= len(left)
	}
	return &out
}

// Return puts a pod back that Without has taken out of a cluster, and reports whether its devices and the room of its host are still free.
func (c *Cluster) Return(pod *v1.Pod, from *Cluster) bool {
	a, host := from.placed[pod.UID], from.hosts[pod.UID]
	i := from.nodeOf(pod.UID)
	if i < 0 || !host.Within(c.Nodes[i].Room()) || c.Book(a, host) != nil {
		return false
	}
	c.placed[pod.UID] = a
	return true
}

// nodeOf returns the place of the node on which a pod has devices, −1 where it has none.
func (c *Cluster) nodeOf(uid types.UID) int {
	a, has := c.placed[uid]
	if !has {
		return -1
	}
	i, _ := slices.BinarySearchFunc(c.Nodes, a.Node, func(n *vgpu.Node, name string) int { return strings.Compare(n.Name(), name) })
	return i
}

// Book gives a pod that does not exist yet the place that package gang found for it. Clusters that share nodes with this one do not change.
func (c *Cluster) Book(place vgpu.Assignment, host vgpu.Room) error {
	i, found := slices.BinarySearchFunc(c.Nodes, place.Node, func(n *vgpu.Node, name string) int { return strings.Compare(n.Name(), name) })
	if !found {
		return fmt.Errorf("book a place for pod %s: node %q is not in the cluster", place.Pod, place.Node)
	}
	n := c.Nodes[i].Clone()
	if len(place.Containers) > 0 {
		if err := n.Add(place); err != nil {
			return fmt.Errorf("book a place for pod %s: %w", place.Pod, err)
		}
	}
	n.SetRoom(n.Room().Less(host))
	c.Nodes[i] = n
	c.pods[i]++
	return nil
}

// addNodes adds the nodes that have devices, by name, and returns their places.
func (c *Cluster) addNodes(o Objects) map[string]int {
	gpus := make(map[string]*v1alpha1.GPUNode, len(o.GPUNodes))
	for _, g := range o.GPUNodes {
		gpus[g.Name] = g
	}
	nodes := slices.Clone(o.Nodes)
	slices.SortFunc(nodes, func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	at := make(map[string]int, len(nodes))
	for _, n := range nodes {
		g := gpus[n.Name]
		if g == nil {
			continue
		}
		devices, err := kube.Devices(g)
		if err == nil && len(devices) == 0 {
			continue
		}
		takes := usable(n, g, devices)
		for i := range devices {
			devices[i].Healthy = devices[i].Healthy && takes
		}
		var ledger *vgpu.Node
		if err == nil {
			ledger, err = vgpu.NewNode(n.Name, devices)
		}
		if err != nil {
			continue // nothing is placed where the devices are unknown
		}
		at[n.Name] = len(c.Nodes)
		c.Nodes, c.Infos = append(c.Nodes, ledger), append(c.Infos, n)
	}
	return at
}

// usable reports whether a node takes new pods with vGPUs: its agent works, it is ready and not cordoned, and its kubelet offers the slots of all
// healthy devices. A kubelet that offers fewer would refuse pods.
func usable(n *v1.Node, g *v1alpha1.GPUNode, devices []vgpu.Device) bool {
	ready := true
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
			ready = c.Status == v1.ConditionTrue
		}
	}
	offered := n.Status.Allocatable[v1alpha1.ResourceVGPU]
	return ready && !n.Spec.Unschedulable && meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady) && kube.OffersAll(offered.Value(), devices)
}

// of reads a pod, or returns what it said before.
func (r *Reader) of(pod *v1.Pod) reading {
	if is, known := r.read[pod.UID]; known && is.version == pod.ResourceVersion && is.version != "" {
		return is
	}
	is := reading{version: pod.ResourceVersion}
	is.host, _ = kube.Host(pod) // a request beyond any host counts as the largest one
	if kube.WantsVGPU(pod) {
		is.assignment, is.err = kube.AssignmentOf(pod)
		_, broken := kube.Containers(pod)
		is.slots = broken == nil
	}
	return is
}

// allocatable returns what a node's host has for pods.
func allocatable(n *v1.Node) vgpu.Room {
	return vgpu.Room{MilliCPU: n.Status.Allocatable.Cpu().MilliValue(), Memory: vgpu.Bytes(n.Status.Allocatable.Memory().Value())}
}

// Placed returns the devices of a pod, and whether it has any.
func (c *Cluster) Placed(pod *v1.Pod) (vgpu.Assignment, bool) {
	a, ok := c.placed[pod.UID]
	return a, ok
}

// Kind returns the number of the pods that the same nodes take, for gang.Member.
func (c *Cluster) Kind(pod *v1.Pod) int {
	for i := range c.kinds {
		if admission.Alike(c.kinds[i].pod, pod) {
			return i
		}
	}
	c.kinds = append(c.kinds, kind{pod, admission.Of(pod)})
	return len(c.kinds) - 1
}

// admits returns how many pods of a kind a node takes.
func (c *Cluster) admits(number, node int) int {
	if !c.kinds[number].demand.MetBy(c.Infos[node]) {
		return 0
	}
	return max(0, int(c.Infos[node].Status.Allocatable.Pods().Value())-c.pods[node])
}

// bars returns why a node takes no pod of a kind, also once all its pods have ended.
func (c *Cluster) bars(number, node int) string { return c.kinds[number].demand.Bar(c.Infos[node]) }

// Divide adds the levels of wishes to the cluster, by the labels of the nodes. A key that no node has is no level: users may name any number of
// them.
func (c *Cluster) Divide(w gang.Wishes) {
	if c.labels == nil {
		c.labels = map[string]bool{}
		for _, n := range c.Infos {
			for key := range n.Labels {
				c.labels[key] = true
			}
		}
	}
	for _, key := range slices.Concat(w.Required, w.Preferred) {
		if key == gang.NVLink || !c.labels[key] || slices.ContainsFunc(c.Levels, func(l gang.Level) bool { return l.Key == key }) {
			continue
		}
		level := gang.Level{Key: key, Domain: make([]int32, len(c.Infos))}
		numbers := map[string]int32{}
		for i, n := range c.Infos {
			value, labelled := n.Labels[key]
			if !labelled {
				level.Domain[i] = -1
				continue
			}
			number, known := numbers[value]
			if !known {
				number = int32(len(level.Names))
				numbers[value], level.Names = number, append(level.Names, value)
			}
			level.Domain[i] = number
		}
		c.Levels = append(c.Levels, level)
	}
}
