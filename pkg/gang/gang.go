package gang

import (
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// NVLink is the level of the devices of one node that NVLink joins, directly or through each other. Every other level is
// the key of a node label.
const NVLink = "nvlink"

// Cluster is what a gang is placed on. Place and Drain change none of it.
type Cluster struct {
	// Nodes with their ledgers and the room of their hosts, in the order of their names. Holds count as they do for the
	// members' priority; those of Group.Members do not count, those of Group.Placed do.
	Nodes []*vgpu.Node
	// Levels says which nodes are close together: one for each label key that the wishes name.
	Levels []Level
	// Admits returns how many members of a kind a node may take by all that is not devices and room of the host (selectors,
	// taints, the number of pods that it runs); nil for any number. The node is an index of Nodes.
	Admits func(kind, node int) int
	// Bars returns why a node takes no member of a kind, whoever ends on it ("node(s) had untolerated taint {dedicated:
	// infra}"), "" where it may take some; nil for "" on all nodes. Admits is 0 wherever it says why. Only Drain and refusals
	// ask it, and Hosts.
	Bars func(kind, node int) string
	// Hosts returns what the host of a node has for pods while none is there; nil for room enough.
	Hosts func(node int) vgpu.Room
	// Host returns what the host of a pod ("namespace/name") has back when the pod ends; nil for nothing. Only Drain and
	// refusals ask it.
	Host func(uid vgpu.UID, pod string) vgpu.Room
	// Avoids reports whether the pods of a node are not to be waited for, although they end; nil for no node. Only Drain and
	// refusals ask it.
	Avoids func(node string) bool
	// Ends returns the Unix time in seconds at which a pod ("namespace/name") on a node ends at the latest, 0 where nobody
	// knows, Never where it does not end by itself; nil for nobody knows. Only Drain and refusals ask it.
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
	// Members that want a place.
	Members []Member
	// Placed are the members that have a place already: the others come near them.
	Placed []vgpu.Assignment
	// MinCount is the least number of members, those with a place included, that may run: from 1 to their number. Where
	// enough have a place already, one of the others must find a place for a plan.
	MinCount int
	Wishes   Wishes
	// Losses say what the gang loses when it is spread; levels that are not listed cost an unknown amount.
	Losses []Loss
}

// Member is one pod that wants a place.
type Member struct {
	// Request of the pod. Without containers it asks for no GPU and needs only the room of a host.
	Request vgpu.Request
	// Rank orders the members: neighbours in rank come close together. Members of the same rank are ordered by Pod, then UID.
	Rank int
	// Kind numbers what Cluster.Admits goes by: members of one kind are admitted by the same nodes.
	Kind int
}

// Wishes say how close together the members come.
type Wishes struct {
	// Required levels: one domain of each takes all members.
	Required []string
	// Preferred levels, the most wanted first: one domain of the first that can takes all members. Of the others as few
	// domains as possible are used, the first ones first.
	Preferred []string
}

// Loss is the part of its work that a gang loses when it is on more than one domain of a level.
type Loss struct {
	// Level as in Wishes.
	Level string
	// Part in thousandths, 0 to vgpu.WholeGPU: at 0 the level is no reason to prefer a place.
	Part vgpu.MilliGPU
}

// Config is what Place goes by.
type Config struct {
	// Policy ranks devices and nodes; the zero value is packed.
	Policy placement.Policy
	// MaxDomains bounds how many domains of each level are tried with real placements; 0 stands for DefaultMaxDomains.
	// Larger may find a less fragmenting place, or for unlike members one at all, and takes longer, in proportion.
	MaxDomains int
	// SkipExplanation leaves the reason and the nearest misses out of refusals of Place, which take longer than the search: they say
	// NoRoom whatever the reason is.
	SkipExplanation bool
}

// DefaultMaxDomains is Config.MaxDomains where it is 0.
const DefaultMaxDomains = 32

// Plan is what to do for a gang.
type Plan struct {
	// Places of the members, in the order of Group.Members. Node is "" for a member that gets no place, which only members
	// beyond MinCount do. It is nil where Refused says why.
	Places []vgpu.Assignment
	// Spread over the levels of the wishes, the required first, and over the nodes at last (Key "").
	Spread []Spread
	// Until is, of a plan by Drain, the Unix time in seconds by which all that holds its devices has ended; 0 where nobody
	// knows.
	Until int64
	// Blockers are, of a plan by Drain, the pods that end before the places are free.
	Blockers []Blocker
	Refused  *Refusal
	Stats    Stats
}

// Spread is how many domains of a level a gang is on, those of its placed members included.
type Spread struct {
	Key     string
	Domains int
}

// Stats tells what a plan cost.
type Stats struct {
	// Domains that could take the gang by a first look, and those of them that were tried.
	Domains, Tried int
	// Fits counts the placements of single members that were tried.
	Fits int
	// Cut says that MaxDomains, or another bound of its kind, ended the search: a better place may exist, or one at all
	// where the plan is refused.
	Cut bool
}

// Reason names why a gang has no place.
type Reason string

// Reasons of refusals.
const (
	// NoLevel: no node has the label of a required level.
	NoLevel Reason = "NoLevel"
	// NeverFits: no domain would take the gang if all its devices were healthy and free and its hosts empty. It is larger than
	// the cluster, or than a domain, illegal on its devices, asks for more CPU or memory than hosts have, or nodes are barred.
	NeverFits Reason = "NeverFits"
	// NoRoom: a domain would take the gang, and others hold its room, or its devices are sick.
	NoRoom Reason = "NoRoom"
	// PlacedApart: the members that have a place are on several domains of a required level.
	PlacedApart Reason = "PlacedApart"
)

// Refusal says why a gang has no place, with the nearest misses.
type Refusal struct {
	Reason Reason
	Helps  vgpu.Help
	// Want is the number of members that must get a place, of the Of that want one, beside the Placed that have one.
	Want, Of, Placed int
	// Share says in words what the members ask for, those that are alike together: "8 × 1 GPU", "1 × 10 slots of A100".
	Share string
	// Level is the tightest required level, "" for the whole cluster.
	Level string
	// Nearest is the domain that takes the most members now, the first by name among equals, and Best how many.
	Nearest string
	Best    int
	// After is the domain that Drain would choose, which takes the gang once pods have ended, and Blockers are those pods.
	// Blockers is empty where none would.
	After    string
	Blockers []Blocker
	// Member is why the first member without a place has none in the nearest domain: the nearest miss of its nodes. nil
	// where devices are not the reason.
	Member *vgpu.Refusal
	// Hosts says why the hosts leave too few nodes although the devices are there; nil where devices are the reason.
	Hosts *Hosts
	// Known lists, for NoLevel, the levels that nodes have (of Cluster.Levels).
	Known []string
	// Cut says that the search was cut: there may be a place that was not seen.
	Cut bool
}

// Blocker is a pod that stands in a gang's way.
type Blocker struct {
	UID vgpu.UID
	// Pod is "namespace/name".
	Pod string
}
