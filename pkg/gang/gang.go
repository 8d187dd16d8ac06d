package gang

import (
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// NVLink is the level of the devices of one node that NVLink joins, directly or through each other. Every other level
// is the key of a node label.
const NVLink = "nvlink"

// Cluster is the nodes and rules for a gang's placement. Place and Drain do not change it.
type Cluster struct {
	// Nodes with their ledgers and the free CPU and memory of their hosts, in the order of their names. Holds count as
	// they do for the members' priority. The holds of Group.Members do not count, those of Group.Placed do.
	Nodes []*vgpu.Node
	// Levels says which nodes are close together, by label. If wishes name a key that is not in the list, no node has the label.
	Levels []Level
	// Admits returns how many members of a kind a node may take by everything except devices and the host's CPU and
	// memory. Examples are selectors, taints, the number of pods on the node. A nil function allows any number. The
	// node is an index of Nodes.
	Admits func(kind, node int) int
	// Bars returns why a node takes no member of a kind even when all its pods have ended, such as "node(s) had
	// untolerated taint {dedicated: infra}". "" means that the node may take some; nil stands for "" on all nodes. If it
	// returns a reason, Admits is 0. Only Drain, refusals and Hosts use it.
	Bars func(kind, node int) string
	// Hosts returns the CPU and memory that a node's host has for pods while no pod is there; nil stands for no limit.
	Hosts func(node int) vgpu.Room
	// Host returns the CPU and memory that a host gets back when a pod ("namespace/name") ends; nil stands for nothing.
	// Only Drain and refusals use it.
	Host func(uid vgpu.UID, pod string) vgpu.Room
	// Avoids reports whether a gang must not wait for the pods of a node, although they end; nil stands for no node.
	// Only Drain and refusals use it.
	Avoids func(node string) bool
	// Ends returns the latest Unix time in seconds at which a pod ("namespace/name") on a node ends. 0 stands for an
	// unknown end and Never for a pod that does not end by itself. nil stands for unknown ends. Only Drain and refusals
	// use it.
	Ends func(uid vgpu.UID, pod string) int64
}

// Level is one way to divide the nodes of a cluster into domains.
type Level struct {
	// Key of the node label.
	Key string
	// Domain is the number of the domain of each node of the cluster, −1 for nodes without the label.
	Domain []int32
	// Names of the domains, by number.
	Names []string
}

// Group is a gang, or what is missing of it.
type Group struct {
	// Name is "namespace/name", for people.
	Name string
	// Members that need a place.
	Members []Member
	// Placed are the members that have a place already: Place puts the others near them.
	Placed []vgpu.Assignment
	// MinCount is the least number of members that may run, from 1 to the number of all members. Members with a place
	// count. If enough members have a place already, a plan must place one more member at least.
	MinCount int
	Wishes   Wishes
	// Losses are the losses of the gang by its spread. A level without an entry has an unknown loss.
	Losses []Loss
}

// Member is one pod that needs a place.
type Member struct {
	// Request of the pod. A request without containers needs only the room of a host.
	Request vgpu.Request
	// Rank orders the members: neighbours in rank come close together. Members of the same rank are ordered by Pod, then UID.
	Rank int
	// Kind is the number by which Cluster.Admits knows the member: the same nodes admit all members of one kind.
	Kind int
}

// Wishes say how close together the members come.
type Wishes struct {
	// Required levels: one domain of each takes all members.
	Required []string
	// Preferred levels, the most important first. Place looks for one domain of the first level that takes all members. It
	// uses as few domains of the other levels as possible, the first ones first.
	Preferred []string
}

// Or returns the wishes, and for a gang that names no level those levels as preferred ones.
func (w Wishes) Or(usual []string) Wishes {
	if len(w.Required) == 0 && len(w.Preferred) == 0 {
		w.Preferred = usual
	}
	return w
}

// Loss is the part of its work that a gang loses when it is on more than one domain of a level.
type Loss struct {
	// Level as in Wishes.
	Level string
	// Part in thousandths, 0 to vgpu.WholeGPU. At 0 Place does not prefer one domain of the level.
	Part vgpu.MilliGPU
}

// Config holds the settings of Place and Drain.
type Config struct {
	// Policy ranks devices and nodes; the zero value is packed.
	Policy placement.Policy
	// MaxDomains bounds how many domains of each level Place tries with real placements; 0 stands for
	// DefaultMaxDomains. A larger bound may find a place that fragments less, or for unlike members any place at all.
	// The time grows in proportion.
	MaxDomains int
	// SkipExplanation makes Place refuse with NoRoom and without the nearest misses, whatever the reason is. Finding
	// the reason takes longer than the search.
	SkipExplanation bool
}

// DefaultMaxDomains is Config.MaxDomains where it is 0.
const DefaultMaxDomains = 32

// Plan is what to do for a gang.
type Plan struct {
	// Places of the members, in the order of Group.Members. Node is "" for a member without a place; only members
	// beyond MinCount may have none. Places is nil where Refused says why.
	Places []vgpu.Assignment
	// Spread over the levels of the wishes, the required levels first. The last entry counts nodes (Key "").
	Spread []Spread
	// Until is, in a plan by Drain, the Unix time in seconds by which all blockers have ended; 0 where that time is
	// unknown.
	Until int64
	// Blockers are, in a plan by Drain, the pods that must end before the places are free.
	Blockers []Blocker
	Refused  *Refusal
	Stats    Stats
}

// Spread is how many domains of a level a gang is on, the domains of its placed members included.
type Spread struct {
	Key     string
	Domains int
}

// Stats counts the work that a plan took.
type Stats struct {
	// Domains counts the domains whose bounds admit the gang, Tried those that the search tried.
	Domains, Tried int
	// Fits counts the placements of single members that the search tried.
	Fits int
	// Cut says that MaxDomains, or another bound of its kind, ended the search: a better place may exist, or any place
	// where the plan is refused.
	Cut bool
}

// Reason names why a gang has no place.
type Reason string

// Reasons of refusals.
const (
	// NoLevel: no node has the label of a required level.
	NoLevel Reason = "NoLevel"
	// NeverFits: no domain would take the gang if all its devices were healthy and free and its hosts empty. The gang
	// is larger than the cluster or than a domain, or no device is legal for it. Other causes are a request for more
	// CPU or memory than hosts have, and Cluster.Bars that exclude too many nodes.
	NeverFits Reason = "NeverFits"
	// NoRoom: a domain would take the gang, but other pods use its devices or hosts, or its devices are unhealthy.
	NoRoom Reason = "NoRoom"
	// PlacedApart: the members that have a place are on several domains of a required level.
	PlacedApart Reason = "PlacedApart"
)

// Refusal says why a gang has no place, with the nearest misses.
type Refusal struct {
	Reason Reason
	Helps  vgpu.Help
	// Want is the number of members that must get a place. Of is the number of members that need one, Placed of those
	// that have one.
	Want, Of, Placed int
	// Share describes the members' requests, like members together: "8 × 1 GPU", "1 × 10 slots of A100".
	Share string
	// Level is the tightest required level, "" for the whole cluster.
	Level string
	// Nearest is the domain that takes the most members now, the first by name among equals. Best is how many it takes.
	Nearest string
	Best    int
	// After is the domain that Drain would choose: it takes the gang once Blockers, which are pods, have ended.
	// Blockers is empty where no domain would.
	After    string
	Blockers []Blocker
	// Member says why the first member without a place has none in the nearest domain: it is the nearest miss of the
	// domain's nodes. Member is nil where devices are not the reason.
	Member *vgpu.Refusal
	// Hosts says why the hosts leave too few nodes although enough devices are free. Hosts is nil where devices are the
	// reason.
	Hosts *Hosts
	// Known lists, for NoLevel, the levels that nodes have (of Cluster.Levels).
	Known []string
	// Cut says that a bound ended the search early: there may be a place that the search did not try.
	Cut bool
}

// Blocker is a pod that must end before a gang has its places.
type Blocker struct {
	UID vgpu.UID
	// Pod is "namespace/name".
	Pod string
}
