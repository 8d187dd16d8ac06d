package nvml

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Device is one physical GPU as NVML describes it.
type Device struct {
	// UUID is "GPU-…". It is empty only for a device that was already lost when the library was opened.
	UUID string
	// Index is NVML's index, Minor the N of /dev/nvidiaN.
	Index, Minor int
	// Model is the product name with dashes for blanks: "NVIDIA-A100-SXM4-40GB".
	Model string
	// Memory is what programs can use: the total less what the driver reserves, where the driver tells that.
	Memory vgpu.Bytes
	// Capability is the CUDA compute capability.
	Capability Capability
	// PCIBusID as NVML writes it: "00000000:07:00.0".
	PCIBusID string
	// NUMANode is the memory node next to the device, -1 if the platform tells none or several.
	NUMANode int
	// Links to the other devices of the node that answer, by peer.
	Links []Link
	// MIG is set for a device that is split into instances. Such a device serves no shares as a whole.
	MIG *MIG
	// Health at the time of the call.
	Health Health
}

// Capability is a CUDA compute capability.
type Capability struct{ Major, Minor int }

// String returns the usual form, "8.0".
func (c Capability) String() string { return fmt.Sprintf("%d.%d", c.Major, c.Minor) }

// Link is the best path to another device.
type Link struct {
	// Peer is the other device's UUID.
	Peer string
	// Type in the words of `nvidia-smi topo -m`.
	Type v1alpha1.LinkType
	// Lanes counts the NVLinks of an NVLink path. Through NVSwitches it is what the narrower end has.
	Lanes int
}

// MIG describes a device in MIG mode.
type MIG struct {
	// Instances are the UUIDs of the MIG devices, "MIG-…".
	Instances []string
}

// Reason is a CamelCase word for what is wrong with a device.
type Reason string

// Reasons. None is a device that answers.
const (
	None Reason = ""
	// Lost: it has fallen off the bus.
	Lost Reason = "GPULost"
	// ResetRequired: the driver refuses work until it is reset.
	ResetRequired Reason = "ResetRequired"
	// NotAnswering: NVML gave another error.
	NotAnswering Reason = "NVMLError"
	// CriticalXID: the driver logged an error that is not the fault of a program.
	CriticalXID Reason = "CriticalXID"
)

// Health says whether a device answers.
type Health struct {
	// Reason is None for a healthy device.
	Reason Reason
	// Message says what was seen, for people; empty for a healthy device.
	Message string
}

// OK says that nothing is wrong.
func (h Health) OK() bool { return h.Reason == None }

// firstMPS is the first compute capability whose MPS gives every client an address space of its own (Volta). NVIDIA's
// own device plugin compares with 7.5 and so leaves out V100; the MPS documentation says Volta.
var firstMPS = Capability{7, 0}

// Below says whether c is older than other.
func (c Capability) Below(other Capability) bool {
	return c.Major < other.Major || c.Major == other.Major && c.Minor < other.Minor
}

// SupportsMPS says whether shares of such a device can run under MPS.
func (c Capability) SupportsMPS() bool { return !c.Below(firstMPS) }

// MaxMPSContexts returns how many client contexts one device serves at once under MPS: 16 before Volta, 48 from Volta
// on, and 60 when the driver's CUDA version (1000·major + 10·minor) is 13.1 or newer. Source: NVIDIA MPS documentation,
// client limits. Example: a T4 (7.5) under CUDA 13.0 (13000) serves 48.
func MaxMPSContexts(c Capability, cudaVersion int) int {
	switch {
	case !c.SupportsMPS():
		return 16
	case cudaVersion >= 13010:
		return 60
	default:
		return 48
	}
}
