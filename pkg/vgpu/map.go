package vgpu

// Map shows a cluster at one moment: nodes, devices, the slices of the devices with their owners, and the pods that
// wait with the reasons. Pages, `kubectl tandem` and the simulator show the same one, as JSON with these keys. Later
// versions may add keys and never rename one.
type Map struct {
	// AtSeconds is the moment, in seconds from the start of the run.
	AtSeconds float64      `json:"at_seconds"`
	Nodes     []MapNode    `json:"nodes"`
	Pending   []MapPending `json:"pending"`
}

// MapNode is one node of a Map.
type MapNode struct {
	Name string `json:"name"`
	// Problem says why the node takes no pods with shares; absent where it does, and in the simulator.
	Problem string `json:"problem,omitempty"`
	// FreeMilliCPU and FreeMemory are what further pods may use of the host.
	FreeMilliCPU int64       `json:"free_cpu_milli"`
	FreeMemory   Bytes       `json:"free_memory_bytes"`
	Devices      []MapDevice `json:"devices"`
}

// MapDevice is one device of a Map.
type MapDevice struct {
	ID DeviceID `json:"id"`
	// Name for users, unique on the node except for MIG instances of one GPU: "g0".
	Name    string `json:"name"`
	Model   string `json:"model"`
	Slots   Slots  `json:"slots"`
	Memory  Bytes  `json:"memory_bytes"`
	Healthy bool   `json:"healthy"`
	// Reason is a word for why the device is not healthy; absent where nobody says it.
	Reason string `json:"reason,omitempty"`
	// Slices with an owner or a hold, the lowest first.
	Slices []MapSlice `json:"slices"`
}

// MapSlice is what one pod has of one device: the slots From up to and without To. Slots have no places on a device;
// the map lists slices side by side, assignments before holds, each by the UID of the pod. Holds may reach beyond the
// device, since a hold may wait for other pods to end.
type MapSlice struct {
	From   Slots  `json:"from"`
	To     Slots  `json:"to"`
	Memory Bytes  `json:"memory_bytes"`
	Pod    string `json:"pod"`
	UID    UID    `json:"uid"`
	// Held: the scheduler keeps the slice for the pod, which is not there yet.
	Held bool `json:"held"`
}

// MapPending is one pod that waits, or a gang.
type MapPending struct {
	// Pod is the name of the pod, or of the gang.
	Pod string `json:"pod"`
	// UID of the pod, or of the first member.
	UID UID `json:"uid"`
	// Members that wait together, 0 for a single pod.
	Members int `json:"members,omitempty"`
	// Slots in its containers' requests at most at one time, added up over all members.
	Slots Slots `json:"slots"`
	// SinceSeconds is when it arrived, on the clock of AtSeconds.
	SinceSeconds float64 `json:"since_seconds"`
	// Reason describes why it waits.
	Reason string `json:"reason"`
}

// MapOf returns the map of the nodes, in their order, without a time and without pending pods.
func MapOf(nodes []*Node) Map {
	m := Map{Nodes: make([]MapNode, 0, len(nodes)), Pending: []MapPending{}}
	for _, n := range nodes {
		out := MapNode{
			Name: n.name, FreeMilliCPU: n.room.MilliCPU, FreeMemory: n.room.Memory,
			Devices: make([]MapDevice, 0, len(n.devices)),
		}
		for i := range n.devices {
			out.Devices = append(out.Devices, n.mapDevice(i))
		}
		m.Nodes = append(m.Nodes, out)
	}
	return m
}

func (n *Node) mapDevice(i int) MapDevice {
	d := &n.devices[i]
	out := MapDevice{
		ID: d.ID, Name: d.Name(), Model: d.Model, Slots: d.Slots, Memory: d.Memory, Healthy: d.Healthy,
		Slices: []MapSlice{},
	}
	from := Slots(0)
	for _, held := range []bool{false, true} {
		for _, e := range *n.list(held) {
			for _, u := range e.uses {
				if _, assigned := find(n.pods, e.UID); u.device != i || held && assigned {
					continue
				}
				out.Slices = append(out.Slices, MapSlice{
					From: from, To: from + u.use.Slots, Memory: u.use.Memory, Pod: e.Pod, UID: e.UID, Held: held,
				})
				from += u.use.Slots
			}
		}
	}
	return out
}
