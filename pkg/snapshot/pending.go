package snapshot

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Pending is a pod that asks for devices and has no node.
type Pending struct {
	Name
	Gang     *GangName `json:"gang,omitempty"`
	Workload string    `json:"workload,omitempty"`
	// Owners as in Pod.
	Owners []string `json:"owners,omitempty"`
	// Since is when the pod was created.
	Since time.Time `json:"since,omitzero"`
	// Gates are the names of its scheduling gates: it is not tried while there are any.
	Gates []string `json:"gates,omitempty"`
	// Request is what it asks for; absent where the request is malformed.
	Request *Request `json:"request,omitempty"`
	// Refused is how the last attempt ended; absent before the first.
	Refused *Refused `json:"refused,omitempty"`
}

// Request is what a pod asks for.
type Request struct {
	Priority int32 `json:"priority,omitempty"`
	// EndsAfterSeconds is for how long the pod runs at most, its grace period included, 0 for no bound.
	EndsAfterSeconds int64              `json:"endsAfterSeconds,omitempty"`
	Containers       []ContainerRequest `json:"containers"`
	// ComputeLimit and MemoryLimitBytes are those on each device, 0 for the request.
	ComputeLimit     vgpu.MilliGPU `json:"computeLimitMilliGPU,omitempty"`
	MemoryLimitBytes vgpu.Bytes    `json:"memoryLimitBytes,omitempty"`
	MaxSlowdownMilli int64         `json:"maxSlowdownMilli,omitempty"`
	// Models that the pod may use, empty for any.
	Models []ModelRequest `json:"models,omitempty"`
	// MilliCPU and MemoryBytes are what it asks of the host.
	MilliCPU    int64      `json:"milliCPU"`
	MemoryBytes vgpu.Bytes `json:"memoryBytes"`
}

// ContainerRequest is what a container asks for. MemoryBytes are those of all its devices together, 0 for memory in proportion
// to the slots.
type ContainerRequest struct {
	Name        string     `json:"name"`
	Kind        string     `json:"kind"`
	Slots       vgpu.Slots `json:"slots"`
	MemoryBytes vgpu.Bytes `json:"memoryBytes,omitempty"`
}

// ModelRequest is a GPU model that a pod may use: the least compute that it needs there, and the price of that.
type ModelRequest struct {
	Model   string        `json:"model"`
	Compute vgpu.MilliGPU `json:"computeMilliGPU,omitempty"`
	Cost    int64         `json:"cost,omitempty"`
}

// Refused is how the last attempt to place a pod ended.
type Refused struct {
	At time.Time `json:"at,omitzero"`
	// Message is the sentence in the pod's condition.
	Message string `json:"message,omitempty"`
	// Illegal is why no device can meet what the pod asks for, where that is something which Request does not have: a rate, a latency, or
	// memory that its profile says it needs. "" where devices may meet it, and Other for readers who may not see sentences.
	Illegal string `json:"illegal,omitempty"`
	// Nodes counts the nodes that were refused, by reason, sorted by reason. A node that another plugin refused has the plugin's
	// name for a reason.
	Nodes []RefusedNodes `json:"nodes,omitempty"`
	// Nearest is the nearest miss on devices, with its numbers; nil where there was none.
	Nearest *Refusal `json:"nearest,omitempty"`
	// RoomAtSlowdownMilli is the max-slowdown of the pod, in thousandths, with which the same attempt found room on one of these nodes, where
	// its own kept it away; 0 where none was found. It is the least of those that were tried: what is predicted on the nearest devices.
	RoomAtSlowdownMilli int64 `json:"roomAtSlowdownMilli,omitempty"`
}

// RefusedNodes counts nodes.
type RefusedNodes struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
}

// Refusal is why a node does not take a pod: see vgpu.Refusal.
type Refusal struct {
	Reason vgpu.Reason `json:"reason"`
	// Helps is what could make room: nothing, eviction or recovery.
	Helps     string    `json:"helps"`
	Container string    `json:"container,omitempty"`
	Node      string    `json:"node,omitempty"`
	Device    string    `json:"device,omitempty"`
	Model     string    `json:"model,omitempty"`
	Unit      vgpu.Unit `json:"unit,omitempty"`
	// Want is what the pod asks for, Best the most that is possible, Of the capacity that Best is a part of.
	Want int64 `json:"want"`
	Best int64 `json:"best"`
	Of   int64 `json:"of"`
	// Legal are the nearest legal slots; Allowed and Present the models that the pod may use and that are there.
	Legal   []vgpu.Slots `json:"legal,omitempty"`
	Allowed []string     `json:"allowed,omitempty"`
	Present []string     `json:"present,omitempty"`
	// Promised is the pod, "namespace/name", whose max-slowdown would break, "" for the refused one. Beside are the pods there.
	Promised string   `json:"promised,omitempty"`
	Beside   []string `json:"beside,omitempty"`
}

// helps are the words for what helps, in the order of vgpu.Help.
var helps = []string{"nothing", "eviction", "recovery"}

// RefusalOf turns a refusal into its form in a snapshot.
func RefusalOf(r *vgpu.Refusal) *Refusal {
	return &Refusal{
		Reason: r.Reason, Helps: helps[r.Helps], Container: r.Container, Node: r.Node, Device: r.Device, Model: r.Model,
		Unit: r.Unit, Want: r.Want, Best: r.Best, Of: r.Of, Legal: r.Legal, Allowed: r.Allowed, Present: r.Present,
		Promised: r.Promised, Beside: r.Beside,
	}
}

// String describes the refusal in the words of vgpu.Refusal, without what would help.
func (r *Refusal) String() string {
	return vgpu.Refusal{
		Reason: r.Reason, Container: r.Container, Node: r.Node, Device: r.Device, Model: r.Model, Unit: r.Unit, Want: r.Want, Best: r.Best, Of: r.Of,
		Legal: r.Legal, Allowed: r.Allowed, Present: r.Present, Promised: r.Promised, Beside: r.Beside,
	}.String()
}

// RequestOf turns a request into its form in a snapshot. Its Ends counts from now, in Unix seconds.
func RequestOf(r *vgpu.Request, now int64) *Request {
	out := &Request{
		Priority: r.Priority, ComputeLimit: r.ComputeLimit, MemoryLimitBytes: r.MemoryLimit, MaxSlowdownMilli: r.MaxSlowdown,
		MilliCPU: r.Host.MilliCPU, MemoryBytes: r.Host.Memory, Containers: make([]ContainerRequest, 0, len(r.Containers)),
	}
	if r.Ends > now {
		out.EndsAfterSeconds = r.Ends - now
	}
	for _, c := range r.Containers {
		out.Containers = append(out.Containers, ContainerRequest{c.Name, kinds[c.Kind], c.Slots, c.Memory})
	}
	for _, v := range r.Variants {
		out.Models = append(out.Models, ModelRequest{v.Model, v.Compute, v.Cost})
	}
	return out
}

// ToPlace returns the request of a pod that waits, as it would be tried at a time in Unix seconds; nil where it is malformed.
// The number of its workload is that of Workloads.
func (s *Snapshot) ToPlace(p *Pending, now int64) *vgpu.Request {
	return s.ToPlaceAll([]*Pending{p}, now)[0]
}

// ToPlaceAll is ToPlace for several pods. It goes through the snapshot once.
func (s *Snapshot) ToPlaceAll(pods []*Pending, now int64) []*vgpu.Request {
	n, all := numbered(s.Workloads()), make([]*vgpu.Request, 0, len(pods))
	for _, p := range pods {
		r := p.toPlace(now)
		if r != nil {
			r.Workload = n.of(p.Namespace, p.Workload)
		}
		all = append(all, r)
	}
	return all
}

// toPlace is ToPlace without the workload.
func (p *Pending) toPlace(now int64) *vgpu.Request {
	in := p.Request
	if in == nil {
		return nil
	}
	r := &vgpu.Request{
		UID: p.UID, Pod: p.Path(), Priority: in.Priority, ComputeLimit: in.ComputeLimit, MemoryLimit: in.MemoryLimitBytes,
		Host: vgpu.Room{MilliCPU: in.MilliCPU, Memory: in.MemoryBytes},
	}
	r.MaxSlowdown = in.MaxSlowdownMilli
	if in.EndsAfterSeconds > 0 {
		r.Ends = now + in.EndsAfterSeconds
	}
	for _, c := range in.Containers {
		kind, _ := kindOf(c.Kind)
		r.Containers = append(r.Containers, vgpu.ContainerRequest{Name: c.Name, Kind: kind, Slots: c.Slots, Memory: c.MemoryBytes})
	}
	for _, m := range in.Models {
		r.Variants = append(r.Variants, vgpu.Variant{Model: m.Model, Compute: m.Compute, Cost: m.Cost})
	}
	return r
}
