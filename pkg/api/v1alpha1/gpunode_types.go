package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GPUNode tells what GPUs a node has. It is cluster-scoped and named as its node; the node's agent writes the status,
// administrators write the spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=gn,categories=tandem
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Devices",type=integer,JSONPath=`.status.deviceCount`
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.healthyCount`
// +kubebuilder:printcolumn:name="Slots",type=integer,JSONPath=`.status.slotCount`
// +kubebuilder:printcolumn:name="Models",type=string,JSONPath=`.status.models`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what administrators want of the devices.
	// +optional
	Spec GPUNodeSpec `json:"spec,omitempty"`
	// Status is what the agent saw.
	// +optional
	Status GPUNodeStatus `json:"status,omitempty"`
}

// GPUNodeSpec is what administrators want of the node's devices.
type GPUNodeSpec struct {
	// CordonedDevices take no new pods. Pods that run there go on, and keep their shares. `kubectl tandem cordon` writes the
	// list. An entry stays without effect while the node has no such device.
	//
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=128
	CordonedDevices []CordonedDevice `json:"cordonedDevices,omitempty"`
}

// CordonedDevice is a device that an administrator has switched off for new pods.
type CordonedDevice struct {
	// ID is that of the device in the status: the UUID of the GPU or of the MIG device.
	// +kubebuilder:validation:Pattern=`^(GPU|MIG)-[0-9a-zA-Z-]+$`
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Reason says why, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// ReasonCordoned is the word for a healthy device that takes no new pods since an administrator has cordoned it.
const ReasonCordoned = "Cordoned"

// GPUNodeList is a list of GPUNodes.
//
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GPUNode `json:"items"`
}

// GPUNodeStatus is what the agent saw.
type GPUNodeStatus struct {
	// Devices of the node, by index.
	//
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=128
	Devices []GPUDevice `json:"devices,omitempty"`

	// DeviceCount is len(Devices), for kubectl get.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DeviceCount int32 `json:"deviceCount,omitempty"`
	// HealthyCount counts the healthy devices.
	// +optional
	// +kubebuilder:validation:Minimum=0
	HealthyCount int32 `json:"healthyCount,omitempty"`
	// SlotCount adds up the slots of the healthy devices.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SlotCount int32 `json:"slotCount,omitempty"`
	// Models lists the GPU models, comma-separated, for kubectl get.
	// +optional
	// +kubebuilder:validation:MaxLength=8192
	Models string `json:"models,omitempty"`
	// DriverVersion is NVML's driver version.
	// +optional
	// +kubebuilder:validation:MaxLength=80
	DriverVersion string `json:"driverVersion,omitempty"`

	// Conditions: Ready says whether the agent serves the node's devices, DevicesHealthy whether all of them take work,
	// Monitored whether all of them are watched as far as that is possible, PodsKnown from whom the agent knows the pods of
	// the node.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Condition types of a GPUNode.
const (
	// ConditionReady says whether the agent serves the node's devices.
	ConditionReady = "Ready"
	// ConditionDevicesHealthy says whether all devices take work.
	ConditionDevicesHealthy = "DevicesHealthy"
	// ConditionMonitored says whether somebody would notice a device that answers its driver and serves no program. A
	// device that is not monitored takes work all the same.
	ConditionMonitored = "Monitored"
	// ConditionPodsKnown says whether the agent knows the pods of its node, and from whom.
	ConditionPodsKnown = "PodsKnown"
)

// Reasons of ConditionReady.
const (
	// ReadyServing: the kubelet watches the slots.
	ReadyServing = "Serving"
	// ReadyNotRegistered: the kubelet does not watch the slots.
	ReadyNotRegistered = "NotRegistered"
	// ReadyAgentLost: the node's kubelet offers no slots, or does not report. The controller writes it, in place of what the agent wrote.
	ReadyAgentLost = "AgentLost"
	// ReadyStopping: the agent was told to stop.
	ReadyStopping = "AgentStopping"
	// ReadyPodsUnknown: neither the kubelet nor the API server tells the agent the pods of the node, so that no container
	// with vGPUs can start.
	ReadyPodsUnknown = "PodsUnknown"
	// ReadyNoDriver: the node has no NVIDIA driver, or it does not answer. The agent waits for it.
	ReadyNoDriver = "NoDriver"
)

// Reasons of ConditionDevicesHealthy.
const (
	// DevicesAllHealthy: all devices take work; also where the node has none.
	DevicesAllHealthy = "AllHealthy"
	// DevicesRecovering: those that do not are well again, and are watched for a while.
	DevicesRecovering = "Recovering"
	// DevicesSick: at least one takes no work; the message names them with their reasons.
	DevicesSick = "DevicesSick"
)

// Reasons of ConditionMonitored.
const (
	// MonitoredAll: all devices are monitored; also where the node has none.
	MonitoredAll = "AllMonitored"
	// MonitoredNotYet: the agent has just started.
	MonitoredNotYet = "NotYetProbed"
	// MonitoredNoCUDA: there is no libcuda.so.1, so nothing can try what a program would do.
	MonitoredNoCUDA = "NoCUDA"
	// MonitoredProbeFails: the canary fails for another reason than a sick device.
	MonitoredProbeFails = "ProbeFails"
	// MonitoredNoEvents: the driver does not report XID errors.
	MonitoredNoEvents = "NoXIDEvents"
)

// Reasons of ConditionPodsKnown.
const (
	// PodsFromKubelet: by the kubelet's Pods API.
	PodsFromKubelet = "FromKubelet"
	// PodsFromServer: by the API server, since the kubelet does not serve the Pods API.
	PodsFromServer = "FromAPIServer"
	// PodsUnknown: neither tells them.
	PodsUnknown = "PodsUnknown"
)

// DeviceHealth says whether a device takes work.
//
// +kubebuilder:validation:Enum=Healthy;Unhealthy
type DeviceHealth string

// Values of DeviceHealth.
const (
	// Healthy devices take new work.
	Healthy DeviceHealth = "Healthy"
	// Unhealthy devices take none. Work that runs there goes on if it can.
	Unhealthy DeviceHealth = "Unhealthy"
)

// Enforcement is what keeps a share in its bounds.
//
// +kubebuilder:validation:Enum=cooperative;server;cgroup;partition;none
type Enforcement string

// Values of Enforcement that this release publishes.
const (
	// EnforcementCooperative is MPS v2: limits in the client's environment, which a client could raise.
	EnforcementCooperative Enforcement = "cooperative"
	// EnforcementNone is time slicing without any limit.
	EnforcementNone Enforcement = "none"
)

// GPUDevice is one physical GPU or one MIG instance.
//
// +kubebuilder:validation:XValidation:rule="self.health == 'Healthy' || self.reason.size() > 0",message="an unhealthy device names a reason"
// +kubebuilder:validation:XValidation:rule="!has(self.links) || self.links.all(l, l.peer != self.id)",message="a device has no link to itself"
type GPUDevice struct {
	// ID is the UUID of the GPU or of the MIG device.
	// +kubebuilder:validation:Pattern=`^(GPU|MIG)-[0-9a-zA-Z-]+$`
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`
	// Index is NVML's index; "g<index>" in what people read. MIG devices have indices after those of all GPUs.
	// +kubebuilder:validation:Minimum=0
	Index int32 `json:"index"`
	// Model is NVML's product name with dashes for blanks, for example "NVIDIA-A100-SXM4-40GB".
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// Memory of the device, more than nothing.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^0*[1-9][0-9]*(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$`
	Memory resource.Quantity `json:"memory"`
	// Slots that the device is divided into.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Slots int32 `json:"slots"`
	// Contexts is the number of MPS clients that the device can serve at once; 0 means no limit is known.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Contexts int32 `json:"contexts,omitempty"`
	// ContextsUsed is the number of MPS clients that the device serves, as last published: it follows within the
	// agent's telemetry.publishInterval.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ContextsUsed int32 `json:"contextsUsed,omitempty"`
	// Usage is how much of the device is in use, smoothed; absent until it was measured.
	// +optional
	Usage *GPUUsage `json:"usage,omitempty"`
	// Tenants are the pods that hold shares of the device and what each uses of it, as last published: the list follows
	// within the agent's telemetry.publishInterval. Nothing that decides where a pod may go reads it.
	//
	// +optional
	// +listType=map
	// +listMapKey=uid
	// +kubebuilder:validation:MaxItems=64
	Tenants []GPUTenant `json:"tenants,omitempty"`
	// ComputeCapability, for example "8.0".
	// +kubebuilder:validation:Pattern=`^[0-9]+\.[0-9]+$`
	ComputeCapability string `json:"computeCapability"`
	// NUMANode of the device; absent when the platform tells none.
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
	// PCIBusID, for example "00000000:07:00.0".
	// +optional
	// +kubebuilder:validation:MaxLength=32
	PCIBusID string `json:"pciBusID,omitempty"`
	// Links to the other devices of the node.
	// +optional
	// +listType=map
	// +listMapKey=peer
	// +kubebuilder:validation:MaxItems=127
	Links []GPULink `json:"links,omitempty"`
	// Health of the device.
	Health DeviceHealth `json:"health"`
	// Reason is a CamelCase word for an unhealthy device, empty for a healthy one: XID and a number, GPULost,
	// ResetRequired, ECCUncorrected, MPSFault, MPSWedged, MPSNotRunning, MPSNotAnswering, Recovering and others.
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// Message says what was seen, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// Enforcement is what keeps shares of this device in their bounds.
	Enforcement Enforcement `json:"enforcement"`
}

// GPUUsage is how much of a device is in use. It tells what was, not what is reserved, and decides no placement.
type GPUUsage struct {
	// SMUtilizationPercent is the part of the time in which a kernel ran.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SMUtilizationPercent int32 `json:"smUtilizationPercent"`
	// MemoryBandwidthPercent is the part of the time in which device memory was read or written.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MemoryBandwidthPercent int32 `json:"memoryBandwidthPercent"`
	// MemoryUsed by programs, without what the driver keeps for itself.
	// +kubebuilder:validation:XIntOrString
	MemoryUsed resource.Quantity `json:"memoryUsed"`
}

// GPUTenant is what one pod uses of a device, smoothed. It tells what was, not what the pod holds by its assignment.
type GPUTenant struct {
	// UID of the pod.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// SMUtilizationPercent is the part of the time in which a kernel of the pod ran; absent where nobody can tell.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SMUtilizationPercent *int32 `json:"smUtilizationPercent,omitempty"`
	// Measured says that SMUtilizationPercent is the pod's own. Else it is the device's, divided among the tenants.
	// +optional
	Measured bool `json:"measured,omitempty"`
	// MemoryUsed of the device by the programs of the pod; absent where nobody can tell.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$`
	MemoryUsed *resource.Quantity `json:"memoryUsed,omitempty"`
	// Rate that the pod reports of itself, smoothed, in a unit of its own: a decimal from 0 to 1T. Absent where it reports
	// none. A pod can report any rate: readers must not trust it.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,18}(\.[0-9]{1,9})?(n|u|m|k|M|G|T)?$`
	Rate *resource.Quantity `json:"rate,omitempty"`
	// RateSince is since when the pod works with its present counter: since the counter grew after it last began anew, as it
	// does when the program restarts. Absent before it grows, and where the pod shows no counter.
	// +optional
	RateSince *metav1.Time `json:"rateSince,omitempty"`
	// PauseSeconds is for how long the pod did no work before RateSince, right in the mean: one may be wrong by the agent's
	// interval. Absent for the first counter of a pod. By it the controller learns for how long a change of size interrupts an
	// elastic job.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PauseSeconds *int32 `json:"pauseSeconds,omitempty"`
}

// LinkType is the kind of path between two devices, in the words of `nvidia-smi topo -m`.
//
// +kubebuilder:validation:Enum=NVLink;PIX;PXB;PHB;NODE;SYS
type LinkType string

// Values of LinkType, best first.
const (
	// LinkNVLink is a direct NVLink or NVSwitch path.
	LinkNVLink LinkType = "NVLink"
	// LinkPIX crosses at most one PCIe switch.
	LinkPIX LinkType = "PIX"
	// LinkPXB crosses several PCIe switches, no host bridge.
	LinkPXB LinkType = "PXB"
	// LinkPHB crosses a PCIe host bridge.
	LinkPHB LinkType = "PHB"
	// LinkNODE crosses host bridges inside one NUMA node.
	LinkNODE LinkType = "NODE"
	// LinkSYS crosses NUMA nodes.
	LinkSYS LinkType = "SYS"
)

// GPULink is the path to another device of the node.
type GPULink struct {
	// Peer is the other device's ID.
	// +kubebuilder:validation:MaxLength=64
	Peer string `json:"peer"`
	// Type of the best path.
	Type LinkType `json:"type"`
	// Lanes is the number of NVLinks, 0 for other types.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=64
	Lanes int32 `json:"lanes,omitempty"`
}
