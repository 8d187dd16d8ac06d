package fakegpu

import (
	"fmt"
	"strings"
)

// Model is a GPU model.
type Model struct {
	// Name in NVML's form.
	Name string
	// Memory in bytes, as nvidia-smi's total. Reserved is what the driver keeps of it. Both are figures that
	// `nvidia-smi -q` showed to users; Reserved differs by some hundred MiB between drivers.
	Memory, Reserved uint64
	// Major and Minor are the compute capability.
	Major, Minor int
	// SMs is the number of streaming multiprocessors.
	SMs int
	// Fabric joins the devices of one node by NVLink.
	Fabric Fabric
	// Lanes is the number of NVLinks of a device with NVSwitches.
	Lanes int
}

// Fabric is the way in which the devices of a server are joined by NVLink.
type Fabric int

// Kinds of fabric.
const (
	// NoFabric is PCIe only.
	NoFabric Fabric = iota
	// SwitchFabric joins every lane to an NVSwitch (HGX A100, HGX H100).
	SwitchFabric
	// CubeMesh joins the devices directly (DGX-1 with V100).
	CubeMesh
)

const mib = 1 << 20

// models by the name that people use.
var models = map[string]Model{
	"A100": {Name: "NVIDIA A100-SXM4-40GB", Memory: 40960 * mib, Reserved: 620 * mib, Major: 8, SMs: 108, Fabric: SwitchFabric, Lanes: 12},
	"H100": {Name: "NVIDIA H100 80GB HBM3", Memory: 81559 * mib, Reserved: 480 * mib, Major: 9, SMs: 132, Fabric: SwitchFabric, Lanes: 18},
	"T4":   {Name: "Tesla T4", Memory: 15360 * mib, Reserved: 393 * mib, Major: 7, Minor: 5, SMs: 40},
	"V100": {Name: "Tesla V100-SXM2-16GB", Memory: 16384 * mib, Reserved: 240 * mib, Major: 7, SMs: 80, Fabric: CubeMesh},
}

// Names lists the profiles.
func Names() []string { return []string{"A100", "H100", "T4", "V100"} }

// Profile returns a GPU model by its short name: A100, H100, T4 or V100.
func Profile(name string) (Model, error) {
	m, ok := models[name]
	if !ok {
		return Model{}, fmt.Errorf("find profile %q: want one of %s", name, strings.Join(Names(), ", "))
	}
	return m, nil
}

// Node returns the state of a healthy node with count devices of one profile.
func Node(name, profile string, count int) (State, error) {
	m, err := Profile(profile)
	if err != nil {
		return State{}, err
	}
	if count < 0 || count > MaxDevices {
		return State{}, fmt.Errorf("make node %s: %d devices, want 0 to %d", name, count, MaxDevices)
	}
	all := make([]Model, count)
	for i := range all {
		all[i] = m
	}
	return New(name, all...), nil
}

// device returns the index-th device of a node: two devices on a PCIe switch, two switches on a NUMA node's bridge.
func (m Model) device(node string, index int) Device {
	numa := index / 4
	return Device{
		UUID: UUID(node, index), Name: m.Name, Memory: m.Memory, Reserved: m.Reserved, Major: m.Major, Minor: m.Minor, SMs: m.SMs,
		MinorNumber: index,
		PCIBusID:    fmt.Sprintf("%08X:%02X:00.0", index/31, 7+8*(index%31)),
		PCIPath: [4]string{
			fmt.Sprintf("numa%d", numa), fmt.Sprintf("bridge%d", numa), fmt.Sprintf("port%d", index/2), fmt.Sprintf("switch%d", index/2),
		},
		NUMANode: numa,
	}
}

// cubeMesh is the number of lanes between the V100s of a DGX-1, as `nvidia-smi topo -m` prints it there.
var cubeMesh = [8][8]int{
	{0, 1, 1, 2, 2, 0, 0, 0},
	{1, 0, 2, 1, 0, 2, 0, 0},
	{1, 2, 0, 2, 0, 0, 1, 0},
	{2, 1, 2, 0, 0, 0, 0, 1},
	{2, 0, 0, 0, 0, 1, 1, 2},
	{0, 2, 0, 0, 1, 0, 2, 1},
	{0, 0, 1, 0, 1, 2, 0, 2},
	{0, 0, 0, 1, 2, 1, 2, 0},
}

// wire gives the devices their NVLinks.
func wire(devices []Device, profiles []Model) {
	for i := range devices {
		switch profiles[i].Fabric {
		case SwitchFabric:
			for range profiles[i].Lanes {
				devices[i].NVLinks = append(devices[i].NVLinks, NVLink{Peer: ToSwitch})
			}
		case CubeMesh:
			for j := range min(len(devices), len(cubeMesh)) {
				if i >= len(cubeMesh) || profiles[j].Fabric != CubeMesh {
					continue
				}
				for range cubeMesh[i][j] {
					devices[i].NVLinks = append(devices[i].NVLinks, NVLink{Peer: j})
				}
			}
		}
	}
}
