package allocation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"
	"time"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// KubeletCheckpoint is the kubelet's own record of allocations, in the folder of the device plugins. No other file ties
// a CDI name to the pod and the container, init containers included.
const KubeletCheckpoint = "kubelet_internal_checkpoint"

// Holding is one container that holds slots, as the kubelet recorded it.
type Holding struct {
	UID, Container string
	// IDs of the slots, sorted.
	IDs []string
	// Name is the CDI name that Allocate answered; "" where the allocation is not from this agent.
	Name string
}

// File is the kubelet's checkpoint, parsed once for each time that the kubelet writes it.
type File struct {
	Path string
	at   Stamp
	held []Holding
}

// Stamp identifies one version of a file: the kubelet replaces its checkpoint by another file.
type Stamp struct {
	inode uint64
	size  int64
	wrote time.Time
}

// Read returns the holdings, which are not the caller's, and the stamp of the file that they are from.
func (f *File) Read() ([]Holding, Stamp, error) {
	now := stampOf(f.Path) // before the read, so that the next round sees a write in between
	if now != (Stamp{}) && now == f.at {
		return f.held, now, nil
	}
	held, err := ReadHoldings(f.Path)
	if err != nil {
		f.at = Stamp{}
		return nil, Stamp{}, err
	}
	f.held, f.at = held, now
	return held, now, nil
}

// stampOf returns the zero stamp for a file that is not there.
func stampOf(path string) Stamp {
	info, err := os.Stat(path)
	if err != nil {
		return Stamp{}
	}
	s := Stamp{size: info.Size(), wrote: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = sys.Ino
	}
	return s
}

// ReadHoldings reads the kubelet's checkpoint. Before the kubelet has written one there are no holdings.
func ReadHoldings(path string) ([]Holding, error) {
	blob, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's checkpoint: %w", err)
	}
	return parseHoldings(blob)
}

// parseHoldings returns the holdings of our resource, by pod UID and container. A checkpoint whose checksum does not
// hold is an error, as in the kubelet.
func parseHoldings(blob []byte) ([]Holding, error) {
	var data checkpoint.Data
	if err := data.UnmarshalCheckpoint(blob); err != nil {
		return nil, fmt.Errorf("parse the kubelet's checkpoint: %w", err)
	}
	if err := data.VerifyChecksum(); err != nil {
		return nil, fmt.Errorf("parse the kubelet's checkpoint: %w", err)
	}
	entries, _ := data.GetData()
	list := make([]Holding, 0, len(entries))
	for _, e := range entries {
		if e.ResourceName != v1alpha1.ResourceVGPU {
			continue
		}
		name, err := allocatedName(e.AllocResp)
		if err != nil {
			return nil, fmt.Errorf("parse the kubelet's checkpoint: pod %s, container %s: %w", e.PodUID, e.ContainerName, err)
		}
		list = append(list, Holding{UID: e.PodUID, Container: e.ContainerName, IDs: slotsOf(e.DeviceIDs), Name: name})
	}
	slices.SortFunc(list, func(a, b Holding) int {
		return slices.Compare([]string{a.UID, a.Container}, []string{b.UID, b.Container})
	})
	return list, nil
}

// slotsOf returns the IDs of all NUMA nodes once each: a slot of a device on two NUMA nodes stands under both.
func slotsOf(perNUMA checkpoint.DevicesPerNUMA) []string {
	var ids []string
	for _, list := range perNUMA {
		ids = append(ids, list...)
	}
	return SlotSet(ids)
}

func allocatedName(response []byte) (string, error) {
	var r pluginapi.ContainerAllocateResponse
	if err := proto.Unmarshal(response, &r); err != nil {
		return "", fmt.Errorf("decode allocation: %w", err)
	}
	for _, d := range r.CdiDevices {
		if name, ours := cdi.ParseQualified(d.Name); ours {
			return name, nil
		}
	}
	return "", nil
}
