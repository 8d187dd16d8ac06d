package fakegpu

import (
	"crypto/sha256"
	"fmt"
)

// StateVariable names the environment variable that holds the path of the state file.
const StateVariable = "TANDEM_FAKEGPU_STATE"

// MaxDevices is the number of devices that a State may hold; more than any server has.
const MaxDevices = 64

// State is what the fakes pretend: one node with its driver, its devices and the events of the past.
type State struct {
	// Node is the name from which New derives the UUIDs.
	Node string `json:"node"`
	// DriverVersion in NVML's form, for example "580.95.05".
	DriverVersion string `json:"driverVersion"`
	// CUDAVersion is 1000·major + 10·minor: 13000 is CUDA 13.0.
	CUDAVersion int `json:"cudaVersion"`
	// Devices by NVML index.
	Devices []Device `json:"devices"`
	// Tests only append to Events: a waiter sees those that came after it made its event set.
	Events []Event `json:"events,omitempty"`
	// ClientSamples makes NVML name the clients of MPS in its utilisation samples, as reports say of some drivers.
	// Without it the samples name the MPS server for all of them, as seen on an H100 with driver 580.159.
	ClientSamples bool `json:"clientSamples,omitempty"`
	// Interference slows tenants of one device down that are sensitive to each other. The zero value has no noise.
	Interference Interference `json:"interference,omitzero"`
}

// Device is one physical GPU.
type Device struct {
	UUID string `json:"uuid"`
	// Name in NVML's form, with blanks.
	Name string `json:"name"`
	// Memory and Reserved in bytes; Reserved is the part of Memory that the driver keeps.
	Memory   uint64 `json:"memory"`
	Reserved uint64 `json:"reserved,omitempty"`
	// UsedMemory in bytes, without Reserved.
	UsedMemory uint64 `json:"usedMemory,omitempty"`
	// Major and Minor are the compute capability.
	Major int `json:"major"`
	Minor int `json:"minor"`
	// SMs is the number of streaming multiprocessors, 0 where no test reads it.
	SMs int `json:"sms,omitempty"`
	// MinorNumber is the N of /dev/nvidiaN.
	MinorNumber int    `json:"minorNumber"`
	PCIBusID    string `json:"pciBusID"`
	// PCIPath is the way from the root to the device: NUMA node, host bridge, root port, switch. Two devices are as far
	// apart as their paths differ: PIX (all equal), PXB (three equal), PHB (two), NODE (one), SYS (none).
	PCIPath [4]string `json:"pciPath"`
	// NUMANode is the CPU memory node next to the device, -1 for none.
	NUMANode int `json:"numaNode"`
	// NVLinks of the device, in the order of their numbers.
	NVLinks []NVLink `json:"nvlinks,omitempty"`

	// Lost devices have fallen off the bus: NVML answers ERROR_GPU_IS_LOST, and the clients of the device get errors.
	Lost bool `json:"lost,omitempty"`
	// GPUUtilization and MemoryUtilization in percent, beside what processes and MPS clients use.
	GPUUtilization    uint32 `json:"gpuUtilization,omitempty"`
	MemoryUtilization uint32 `json:"memoryUtilization,omitempty"`
	// Temperature in °C, PowerMilliwatts in mW.
	Temperature     uint32 `json:"temperature,omitempty"`
	PowerMilliwatts uint32 `json:"powerMilliwatts,omitempty"`
	// ThrottleReasons is nvml.h's mask nvmlClocksEventReason….
	ThrottleReasons uint64 `json:"throttleReasons,omitempty"`
	// CorrectedECC and UncorrectedECC count errors since the last reset.
	CorrectedECC   uint64 `json:"correctedECC,omitempty"`
	UncorrectedECC uint64 `json:"uncorrectedECC,omitempty"`
	// RowRemapPending and RowRemapFailure are the flags of nvmlDeviceGetRemappedRows.
	RowRemapPending bool `json:"rowRemapPending,omitempty"`
	RowRemapFailure bool `json:"rowRemapFailure,omitempty"`
	// RecoveryAction is nvml.h's number: 0 none, 1 reset the GPU, 2 reboot the node, 3 drain P2P, 4 drain and reset.
	RecoveryAction uint32 `json:"recoveryAction,omitempty"`
	// NoRecoveryAction makes the driver one without that field.
	NoRecoveryAction bool `json:"noRecoveryAction,omitempty"`
	// ComputeMode is NVML's number: 0 default, 2 prohibited, 3 exclusive process. A mode that a process sets through
	// NVML stands beside the state file and wins.
	ComputeMode int `json:"computeMode,omitempty"`
	// Processes that hold a CUDA context on the device without MPS.
	Processes []Process `json:"processes,omitempty"`
	// MIG has the instances of the device, if it has any.
	MIG MIG `json:"mig,omitzero"`
	// MPS has the orders to the control daemon of the device.
	MPS MPS `json:"mps,omitzero"`
}

// NVLink is one lane.
type NVLink struct {
	// Peer is the index of the device at the other end, or ToSwitch.
	Peer int `json:"peer"`
	// Down links are not active.
	Down bool `json:"down,omitempty"`
}

// ToSwitch is the Peer of a link that ends in an NVSwitch.
const ToSwitch = -1

// Process holds a CUDA context.
type Process struct {
	PID uint32 `json:"pid"`
	// Memory in bytes.
	Memory uint64 `json:"memory"`
	// SM and MemoryBandwidth in percent of the device.
	SM              uint32 `json:"sm,omitempty"`
	MemoryBandwidth uint32 `json:"bw,omitempty"`
	// Sensitivity and Pressure are hidden: see Interference. SM and MemoryBandwidth are then those without neighbours.
	Sensitivity float64 `json:"sensitivity,omitempty"`
	Pressure    float64 `json:"pressure,omitempty"`
}

// MIG is the MIG mode of a device.
type MIG struct {
	Enabled bool `json:"enabled,omitempty"`
	// Instances in the order of their MIG device index, at most MaxInstances.
	Instances []MIGInstance `json:"instances,omitempty"`
}

// MaxInstances is the number of MIG devices that a GPU may have.
const MaxInstances = 7

// MIGInstance is a MIG device: a GPU instance with one compute instance.
type MIGInstance struct {
	// UUID begins with "MIG-".
	UUID string `json:"uuid"`
	// Profile as NVIDIA names it, "1g.5gb": compute slices and memory.
	Profile string `json:"profile"`
	// Memory in bytes.
	Memory uint64 `json:"memory"`
	// GI and CI are the IDs of the GPU instance and of the compute instance in it.
	GI int `json:"gi"`
	CI int `json:"ci"`
	// MPS has the orders to the control daemon of the instance.
	MPS MPS `json:"mps,omitzero"`
}

// Event is one XID error.
type Event struct {
	// Device is the index of the device at the time of the read. A UUID wins: it stays true when devices change their
	// places.
	Device int    `json:"device"`
	UUID   string `json:"uuid,omitempty"`
	XID    uint64 `json:"xid"`
}

// New returns the state of a healthy node with one device for each profile, wired as in the usual server of that GPU.
// The UUIDs depend on nothing but the node's name and the index.
func New(node string, profiles ...Model) State {
	s := State{Node: node, DriverVersion: "580.95.05", CUDAVersion: 13000}
	for i, p := range profiles {
		s.Devices = append(s.Devices, p.device(node, i))
	}
	wire(s.Devices, profiles)
	return s
}

// UUID returns the UUID of a node's device.
func UUID(node string, index int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", node, index))
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", sum[0:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
