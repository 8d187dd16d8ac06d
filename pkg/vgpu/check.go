package vgpu

import (
	"errors"
	"fmt"
	"slices"
)

// Check recomputes the ledger, phase by phase, and returns an error where the sums, the order or the capacity do not
// agree. Nil means that the ledger is correct.
func (n *Node) Check() error {
	sums := make([]Use, len(n.devices))
	taken := Slots(0)
	for _, hold := range []bool{false, true} {
		list := *n.list(hold)
		for i := range list {
			if i > 0 && list[i-1].UID >= list[i].UID {
				return fmt.Errorf("check node %s: pod %s is out of order", n.name, list[i].Pod)
			}
			uses := n.recount(&list[i].Assignment)
			if err := n.compareUses(&list[i], uses); err != nil {
				return fmt.Errorf("check node %s: pod %s: %w", n.name, list[i].Pod, err)
			}
			for k := range uses {
				if !hold {
					sums[k] = sums[k].Plus(uses[k])
					taken += uses[k].Slots
				}
			}
		}
	}
	if taken != n.taken {
		return fmt.Errorf("check node %s: %d slots in the ledger, %d in the sum", n.name, taken, n.taken)
	}
	for k := range sums {
		d := &n.devices[k]
		if sums[k] != n.used[k] {
			return fmt.Errorf("check node %s: device %s: ledger adds up to %v, sum says %v", n.name, d.ID, sums[k], n.used[k])
		}
		if !sums[k].Within(d.Capacity()) {
			return fmt.Errorf("check node %s: device %s: used are %v, it has %v", n.name, d.ID, sums[k], d.Capacity())
		}
		if keeps := n.heldUsesOf(k); !slices.Equal(keeps, n.heldUses[k]) {
			return fmt.Errorf("check node %s: device %s: holds keep %+v, noted %+v", n.name, d.ID, keeps, n.heldUses[k])
		}
	}
	return nil
}

// recount returns what an assignment takes of every device, by adding up each phase.
func (n *Node) recount(a *Assignment) []Use {
	kinds := make([]ContainerKind, 0, len(a.Containers))
	for i := range a.Containers {
		kinds = append(kinds, a.Containers[i].Kind)
	}
	spans, phases := Spans(kinds)
	peaks := make([]Use, len(n.devices))
	for p := range phases {
		sums := make([]Use, len(n.devices))
		for i := range a.Containers {
			if p < spans[i].First || p > spans[i].Last {
				continue
			}
			for _, id := range a.Containers[i].Devices {
				sums[n.Index(id)] = sums[n.Index(id)].Plus(a.Containers[i].Share.Use())
			}
		}
		for k := range sums {
			peaks[k] = peaks[k].most(sums[k])
		}
	}
	return peaks
}

// compareUses compares a recount with the uses in the entry.
func (n *Node) compareUses(e *entry, uses []Use) error {
	noted := make([]Use, len(uses))
	for _, u := range e.uses {
		noted[u.device] = u.use
	}
	for k := range uses {
		if uses[k] != noted[k] {
			return fmt.Errorf("device %s: takes %v, noted %v", n.devices[k].ID, uses[k], noted[k])
		}
	}
	return nil
}

// Check checks every node and the cluster's index of pods. Nil means that all are correct.
func (c *Cluster) Check() error {
	pods, holds := 0, 0
	for _, n := range c.nodes {
		if err := n.Check(); err != nil {
			return err
		}
		for _, hold := range []bool{false, true} {
			for _, e := range *n.list(hold) {
				if c.at(hold)[e.UID] != n {
					return fmt.Errorf("check cluster: pod %s is on node %s and not in the index", e.Pod, n.name)
				}
			}
		}
		pods, holds = pods+len(n.pods), holds+len(n.holds)
	}
	if pods != len(c.assigned) || holds != len(c.held) {
		return fmt.Errorf("check cluster: %d assignments and %d holds, the index has %d and %d",
			pods, holds, len(c.assigned), len(c.held))
	}
	if c.depth == 0 && len(c.journal) != 0 {
		return errors.New("check cluster: changes are left in the journal")
	}
	return nil
}
