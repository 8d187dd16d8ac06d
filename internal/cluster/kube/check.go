package kube

import (
	"fmt"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// CheckAssignment compares an assignment with the devices of its node: every device exists, a share is one that the
// device admits, several devices are taken whole, and the pod as a whole fits the empty node. Health is not compared:
// a share on a device that went sick stays valid.
//
// It cannot tell whether other pods hold the same share; that is the ledger's part.
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
