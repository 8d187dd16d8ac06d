package snapshot

import (
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Snapshot is the state of a cluster at one moment.
type Snapshot struct {
	// APIVersion, Kind and Minor say which form this is. The writer of the JSON sets them.
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Minor      int    `json:"minor"`
	// Source is the program that made it: FromScheduler or FromSimulator.
	Source string `json:"source"`
	// At is since when the state is so. The simulator counts from 1970-01-01T00:00:00Z, the start of its scenario.
	At time.Time `json:"at"`
	// Redacted says that names are left out, and all sentences: the reader may not see some namespaces.
	Redacted bool `json:"redacted"`
	// Nodes with a GPUNode, by name.
	Nodes []Node `json:"nodes"`
	// Gangs by source, namespace and name.
	Gangs []Gang `json:"gangs"`
	// Preemptions under way, by preemptor.
	Preemptions []Preemption `json:"preemptions"`
	// Pending are pods that ask for devices and have no node, by UID: a bounded number. PendingLeftOut counts the others.
	Pending        []Pending `json:"pending"`
	PendingLeftOut int       `json:"pendingLeftOut"`
	// ElasticTargets and InferenceFleets by namespace and name.
	ElasticTargets  []ElasticTarget  `json:"elasticTargets"`
	InferenceFleets []InferenceFleet `json:"inferenceFleets"`
}

// Values of Snapshot.Source.
const (
	FromScheduler = "scheduler"
	FromSimulator = "simulator"
)

// Node is the devices of one node and who has shares of them.
type Node struct {
	Name string `json:"name"`
	// Problem says why the node takes no pods with shares, "" where it does.
	Problem string `json:"problem,omitempty"`
	// Topology has the labels of the node that say where it is: see IsTopology.
	Topology map[string]string `json:"topology,omitempty"`
	// FreeMilliCPU and FreeMemoryBytes are what further pods may use of the host.
	FreeMilliCPU    int64      `json:"freeMilliCPU"`
	FreeMemoryBytes vgpu.Bytes `json:"freeMemoryBytes"`
	// StraySlots are slots of pods without a valid assignment: nobody knows which devices they use.
	StraySlots vgpu.Slots `json:"straySlots,omitempty"`
	// Devices by index, then ID.
	Devices []Device `json:"devices"`
	// Links between devices, each pair once; a missing pair has the worst link, SYS.
	Links []Link `json:"links,omitempty"`
	// Pods with shares, by UID, and Holds, by UID: room that the scheduler keeps for pods which are not there yet.
	Pods  []Pod  `json:"pods"`
	Holds []Hold `json:"holds"`
	// Overbooked are pods of the node, by UID, whose shares do not fit beside those of Pods: another scheduler gave the devices away too, or
	// the devices have shrunk. Their devices take no new shares.
	Overbooked []Overbooked `json:"overbooked,omitempty"`

	// Version says when the node is the same as in an earlier snapshot of the same maker: its number is the same then. 0 says nothing. It is
	// no part of the JSON.
	Version uint64 `json:"-"`
}

// Overbooked is a pod whose share does not fit, with the devices and the slots that its assignment names.
type Overbooked struct {
	Name
	Devices []vgpu.DeviceID `json:"devices"`
	Slots   vgpu.Slots      `json:"slots"`
}

// OverbookedBy returns the pods whose shares of a device do not fit.
func (n *Node) OverbookedBy(id vgpu.DeviceID) (pods []Name) {
	for i := range n.Overbooked {
		if slices.Contains(n.Overbooked[i].Devices, id) {
			pods = append(pods, n.Overbooked[i].Name)
		}
	}
	return pods
}

// Device is one physical GPU or one MIG instance.
type Device struct {
	ID          vgpu.DeviceID `json:"id"`
	Index       int           `json:"index"`
	Model       string        `json:"model"`
	Slots       vgpu.Slots    `json:"slots"`
	MemoryBytes vgpu.Bytes    `json:"memoryBytes"`
	// Contexts is the number of MPS clients that the device serves at once, 0 for no limit.
	Contexts int `json:"contexts"`
	// Healthy devices take new shares. Reason is a word for the others.
	Healthy bool   `json:"healthy"`
	Reason  string `json:"reason,omitempty"`
	// Note is what the administrator who cordoned the device says of it, left out for readers who may not see sentences.
	Note string `json:"note,omitempty"`
	// Use as the node's agent last measured it, absent where it did not.
	Use *DeviceUse `json:"use,omitempty"`
}

// Cordoned is the Reason of a device that an administrator has switched off for new pods.
const Cordoned = "Cordoned"

// DeviceUse is how much of a device is in use: parts of the time, memory, MPS clients.
type DeviceUse struct {
	SMPercent        int        `json:"smPercent"`
	BandwidthPercent int        `json:"bandwidthPercent"`
	MemoryBytes      vgpu.Bytes `json:"memoryBytes"`
	Contexts         int        `json:"contexts"`
}

// Link is the path between two devices of a node, by their positions in Node.Devices, the lower first.
type Link struct {
	Between [2]int `json:"between"`
	// Class in the words of `nvidia-smi topo -m`: NVLink, PIX, PXB, PHB, NODE, SYS.
	Class string `json:"class"`
	// Lanes counts the NVLinks of an NVLink path, else 0.
	Lanes int `json:"lanes,omitempty"`
}

// Name names a pod.
type Name struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// UID is unique in the snapshot, also where names are left out.
	UID vgpu.UID `json:"uid"`
}

// Pod is a pod with shares of a node's devices.
type Pod struct {
	Name
	// Gang that the pod belongs to, nil for none.
	Gang *GangName `json:"gang,omitempty"`
	// Workload is the name of its WorkloadProfile in its namespace, whether or not there is one.
	Workload string `json:"workload,omitempty"`
	// Owners made the pod, "Kind/name" each: its controller, and the JobSet of that.
	Owners []string `json:"owners,omitempty"`
	// MaxSlowdownMilli is the slowdown beside neighbours that the pod tolerates, in thousandths; 0 for any.
	MaxSlowdownMilli int64 `json:"maxSlowdownMilli,omitempty"`
	Priority         int32 `json:"priority,omitempty"`
	// Since is when the pod got its node; absent where that is not known.
	Since time.Time `json:"since,omitzero"`
	// EndsBy is when the pod ends at the latest, by its deadline and its grace period; absent where it declares no end, or has not started.
	EndsBy time.Time `json:"endsBy,omitzero"`
	// Ends is when it probably ends; absent where nothing is predicted.
	Ends *Ends `json:"ends,omitempty"`
	// Reserved says that the scheduler has chosen the devices, and the API server does not show the pod on the node yet.
	Reserved   bool        `json:"reserved,omitempty"`
	Containers []Container `json:"containers"`
	// On has what is predicted and measured of the pod, by device; devices without either are absent.
	On []On `json:"on,omitempty"`
}

// Container is the share of one container.
type Container struct {
	Name string `json:"name"`
	// Kind says when it runs: app, init or sidecar.
	Kind string `json:"kind"`
	// Devices by ID. The amounts below are those on each of them.
	Devices          []vgpu.DeviceID `json:"devices"`
	Slots            vgpu.Slots      `json:"slots"`
	MemoryBytes      vgpu.Bytes      `json:"memoryBytes"`
	ComputeLimit     vgpu.MilliGPU   `json:"computeLimitMilliGPU"`
	MemoryLimitBytes vgpu.Bytes      `json:"memoryLimitBytes"`
	// AskedSlots are the slots of the request, where the scheduler gave it more; else 0.
	AskedSlots vgpu.Slots `json:"askedSlots,omitempty"`
}

// On is what is known of a pod on one of its devices.
type On struct {
	Device vgpu.DeviceID `json:"device"`
	// SlowdownMilli is the predicted time beside its neighbours in thousandths of the time alone; 0 where nothing is predicted.
	SlowdownMilli int64 `json:"slowdownMilli,omitempty"`
	// SMPercent and MemoryUsedBytes are what the agent last measured; absent where it did not.
	SMPercent       *int        `json:"smPercent,omitempty"`
	MemoryUsedBytes *vgpu.Bytes `json:"memoryUsedBytes,omitempty"`
	// RateMicro is the rate that the pod reports of itself, in millionths of its own unit; absent where it reports none.
	RateMicro *int64 `json:"rateMicro,omitempty"`
}

// Hold is room that the scheduler keeps for a pod: it counts for pods of the same or a lower priority.
type Hold struct {
	Pod
	// Until is when all present users of the devices are expected to have ended; absent where that is not known. A pod that
	// ends by then may use them meanwhile.
	Until time.Time `json:"until,omitzero"`
}
