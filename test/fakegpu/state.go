package fakegpu

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// StateVariable names the environment variable that holds the path of the state file.
const StateVariable = "TANDEM_FAKEGPU_STATE"

// MaxDevices is the number of devices that a State may hold; more than any server has.
const MaxDevices = 64

// State is what the fakes pretend: one node with its driver, its devices and the events of the past.
type State struct {
	// Node is the name from which New derives the UUIDs.
	Node string `json:"node"`
	// DriverVersion as NVML tells it, for example "580.95.05".
	DriverVersion string `json:"driverVersion"`
	// CUDAVersion is 1000·major + 10·minor: 13000 is CUDA 13.0.
	CUDAVersion int `json:"cudaVersion"`
	// Devices by NVML index.
	Devices []Device `json:"devices"`
	// Events are only ever appended: a waiter sees those that were appended after it registered.
	Events []Event `json:"events,omitempty"`
}

// Device is one physical GPU.
type Device struct {
	UUID string `json:"uuid"`
	// Name as NVML tells it, with blanks.
	Name string `json:"name"`
	// Memory and Reserved in bytes; Reserved is the part of Memory that the driver keeps.
	Memory   uint64 `json:"memory"`
	Reserved uint64 `json:"reserved,omitempty"`
	// UsedMemory in bytes, without Reserved.
	UsedMemory uint64 `json:"usedMemory,omitempty"`
	// Major and Minor are the compute capability.
	Major int `json:"major"`
	Minor int `json:"minor"`
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

	// Lost devices have fallen off the bus: NVML answers ERROR_GPU_IS_LOST.
	Lost bool `json:"lost,omitempty"`
	// GPUUtilization and MemoryUtilization in percent.
	GPUUtilization    uint32 `json:"gpuUtilization,omitempty"`
	MemoryUtilization uint32 `json:"memoryUtilization,omitempty"`
	// UncorrectedECC counts the uncorrected errors since the last reset.
	UncorrectedECC uint64 `json:"uncorrectedECC,omitempty"`
	// ComputeMode is NVML's number: 0 default, 2 prohibited, 3 exclusive process.
	ComputeMode int `json:"computeMode,omitempty"`
	// Processes that hold a CUDA context on the device.
	Processes []Process `json:"processes,omitempty"`
	// MIG tells whether the device is split in instances.
	MIG MIG `json:"mig,omitzero"`
	// MPS tells how the control daemon of the device behaves.
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
	PID    uint32 `json:"pid"`
	Memory uint64 `json:"memory"`
}

// MIG is the MIG mode of a device.
type MIG struct {
	Enabled bool `json:"enabled,omitempty"`
	// Instances are the UUIDs of the MIG devices, "MIG-…".
	Instances []string `json:"instances,omitempty"`
}

// MPS orders the control daemon of a device to misbehave.
type MPS struct {
	// Fault makes every server of the device report the status FAULT.
	Fault bool `json:"fault,omitempty"`
	// Hang makes the daemon accept commands and never answer them.
	Hang bool `json:"hang,omitempty"`
	// IgnoreLimits makes the daemon accept limits and not keep them, as daemons did for devices named by UUID.
	IgnoreLimits bool `json:"ignoreLimits,omitempty"`
	// LingerMillis is how long the daemon lives on after quit.
	LingerMillis int `json:"lingerMillis,omitempty"`
	// Clients are the process IDs that get_client_list names.
	Clients []int `json:"clients,omitempty"`
}

// Event is one XID error.
type Event struct {
	// Device is the index of the device.
	Device int    `json:"device"`
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

// Load reads a state file. Unknown fields are errors: a misspelt order would otherwise be no order.
func Load(path string) (State, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("read state: %w", err)
	}
	var s State
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return State{}, fmt.Errorf("read state %s: %w", path, err)
	}
	return s, s.validate()
}

func (s *State) validate() error {
	if len(s.Devices) > MaxDevices {
		return fmt.Errorf("read state: %d devices, at most %d", len(s.Devices), MaxDevices)
	}
	for i, d := range s.Devices {
		for _, l := range d.NVLinks {
			if l.Peer != ToSwitch && (l.Peer < 0 || l.Peer >= len(s.Devices)) {
				return fmt.Errorf("read state: device %d has an NVLink to device %d of %d", i, l.Peer, len(s.Devices))
			}
		}
	}
	for _, e := range s.Events {
		if e.Device < 0 || e.Device >= len(s.Devices) {
			return fmt.Errorf("read state: event on device %d of %d", e.Device, len(s.Devices))
		}
	}
	return nil
}

// Write replaces the state file in one step, so that no reader sees half of it.
func (s State) Write(path string) error {
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".state-*")
	if err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	_, err = f.Write(append(raw, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write state %s: %w", path, err)
	}
	return nil
}

// Update changes the state file. Two updates at the same time can lose one of them.
func Update(path string, change func(*State)) error {
	s, err := Load(path)
	if err != nil {
		return err
	}
	change(&s)
	return s.Write(path)
}
