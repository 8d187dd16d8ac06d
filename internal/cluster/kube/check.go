package kube

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// CheckAssignment compares an assignment with the devices of its node. Every device must exist and admit its share, a
// container with several devices must take them whole, and the pod as a whole must fit the empty node. Health does not
// count: a share on a device that became unhealthy stays valid.
//
// The ledger checks that no other pod holds the same share.
func CheckAssignment(a vgpu.Assignment, devices []vgpu.Device) error {
	empty, err := vgpu.NewNode(a.Node, devices)
	if err != nil {
		return fmt.Errorf("check assignment of pod %s: %w", a.Pod, err)
	}
	if err := empty.Add(a); err != nil {
		return fmt.Errorf("check assignment of pod %s: %w", a.Pod, err)
	}
	return nil
}
