package nvml

import (
	"cmp"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// lanes counts the active NVLinks of one device by where they end.
type lanes struct {
	// toDevice by the PCI bus ID of the GPU at the other end.
	toDevice map[string]int
	// toSwitch ends at an NVSwitch, which joins it with every other device of the switches.
	toSwitch int
}

// link fills in the paths between all GPUs that answer and are not in MIG mode: programs in a MIG instance have none.
func (l *Library) link(places []place) {
	all := make([]lanes, len(places))
	for i, p := range places {
		if p.whole() {
			all[i] = l.lanes(p.handle)
		}
	}
	for i := range places {
		for j := range places {
			if i == j || !places[i].whole() || !places[j].whole() {
				continue
			}
			peer := places[j].gpu
			path := Link{Peer: peer.UUID, Lanes: between(all[i], all[j], peer.PCIBusID)}
			if path.Lanes > 0 && l.allowsNVLink(places[i].handle, places[j].handle) {
				path.Type = v1alpha1.LinkNVLink
			} else {
				path.Lanes, path.Type = 0, pcie(places[i].handle, places[j].handle)
			}
			places[i].gpu.Links = append(places[i].gpu.Links, path)
		}
		slices.SortFunc(places[i].gpu.Links, func(a, b Link) int { return cmp.Compare(a.Peer, b.Peer) })
	}
}

func (p place) whole() bool { return p.handle != nil && !p.split }

// between returns the NVLinks from one device to another: direct ones, else those through switches. Through switches
// the narrower end counts: 12 lanes here and 10 there carry 10.
func between(from, to lanes, peer string) int {
	if direct := from.toDevice[peer]; direct > 0 {
		return direct
	}
	return min(from.toSwitch, to.toSwitch)
}

// lanes reads every link. An error ends the links of a device; lanes skips inactive ones.
func (l *Library) lanes(h nvml.Device) lanes {
	found := lanes{toDevice: map[string]int{}}
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := h.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		if state != nvml.FEATURE_ENABLED {
			continue
		}
		if l.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
			kind, ret := h.GetNvLinkRemoteDeviceType(link)
			if ret == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
				found.toSwitch++
				continue
			}
		}
		if info, ret := h.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
			found.toDevice[busID(info)]++
		}
	}
	return found
}

// allowsNVLink says whether programs may use the NVLink path. Links through NVSwitches are up before the fabric
// manager has set up routes; until then the driver says that peer access is not there.
func (l *Library) allowsNVLink(from, to nvml.Device) bool {
	if !l.has("nvmlDeviceGetP2PStatus") {
		return true
	}
	status, ret := from.GetP2PStatus(to, nvml.P2P_CAPS_INDEX_NVLINK)
	return ret != nvml.SUCCESS || status == nvml.P2P_STATUS_OK
}

// pcie names the common ancestor of two devices; SYS without an answer of the driver.
func pcie(from, to nvml.Device) v1alpha1.LinkType {
	level, ret := from.GetTopologyCommonAncestor(to)
	if ret != nvml.SUCCESS {
		return v1alpha1.LinkSYS
	}
	switch level {
	case nvml.TOPOLOGY_INTERNAL, nvml.TOPOLOGY_SINGLE:
		return v1alpha1.LinkPIX
	case nvml.TOPOLOGY_MULTIPLE:
		return v1alpha1.LinkPXB
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return v1alpha1.LinkPHB
	case nvml.TOPOLOGY_NODE:
		return v1alpha1.LinkNODE
	default:
		return v1alpha1.LinkSYS
	}
}
