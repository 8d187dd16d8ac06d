package wording

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
)

// advice says what the owner of the pods can do first.
func advice(a *why.Answer) string {
	if a.Cause != nil && len(a.Fits) == 0 {
		return adviceFor(a.Cause)
	}
	if len(a.Changes) > 0 {
		return adviceAfter(&a.Changes[0])
	}
	switch {
	case a.RoomAt > 0 && len(a.Others) == 0:
		return fmt.Sprintf("set %s to %s or more, if it tolerates that.", v1alpha1.AnnotationMaxSlowdown, times(a.RoomAt))
	case len(a.Fits) > 0 && len(a.Others) > 0:
		return "what that plugin looks at: the events of the pod have its sentence."
	case slices.ContainsFunc(a.Nodes, func(n snapshot.RefusedNodes) bool { return n.Reason == why.HostFull }):
		return "the CPU and memory that it asks of the host."
	case len(a.Fits) == 0 && a.Miss != nil && a.Miss.Helps == vgpu.NothingHelps:
		return "the request: these nodes can never meet it."
	}
	return ""
}

// adviceAfter says what the owner of the pods can do where a change helps.
func adviceAfter(c *why.Change) string {
	switch c.Kind {
	case why.LessMemory:
		return fmt.Sprintf("set %s of the container to %v or less, if it needs no more.", v1alpha1.ResourceMemory, c.Memory)
	case why.FewerSlots:
		return fmt.Sprintf("set %s of the container to %d, if it can do with that.", v1alpha1.ResourceVGPU, c.Slots)
	case why.AsGang:
		return fmt.Sprintf("make it a gang of %d pods with %s: %d each, if its program runs as several processes on several nodes.", c.Members, v1alpha1.ResourceVGPU, c.Slots)
	case why.LessHost:
		return fmt.Sprintf("ask for %s of the host, if the pod can do with that.", hostAmounts(c))
	case why.AnyModel:
		return "allow more GPU models."
	case why.FewerMembers:
		return fmt.Sprintf("let the gang begin with %s.", Count(c.Members, "member"))
	case why.PodsEnd:
		return "wait for the pods that end."
	case why.PodsLikelyEnd:
		return "nothing: wait for the pods that probably end."
	case why.PodsLeave:
		if !slices.ContainsFunc(c.Leave, func(l why.Leaving) bool { return l.Higher }) {
			return "nothing if preemption is on: the scheduler evicts them. If it is off, wait until pods end."
		}
		return "give it a higher priority class, or wait until pods end."
	case why.HoldsEnd:
		return "wait, or give it a higher priority class."
	case why.DevicesRecover:
		if commands := uncordon(c); commands != "" {
			return commands + ", if what they were cordoned for is over."
		}
		return "have the devices repaired: the GPUNode of the node says what ails them."
	case why.NodesReturn:
		return "have the node repaired or opened."
	}
	return ""
}

// adviceFor says what the owner of the pods can do about a cause.
func adviceFor(c *why.Cause) string {
	switch c.Kind {
	case why.Illegal:
		return "ask for less: no share of any GPU of the cluster reaches it."
	case why.Malformed:
		if c.Pod == nil {
			return "correct the members of the gang."
		}
		return "correct the request of the pod."
	case why.Gated:
		return fmt.Sprintf("whoever set %s has to remove it.", strings.Join(c.Gates, ", "))
	case why.HeldBack:
		return "nothing: the controller raises the target when it finds GPUs for more workers."
	case why.Incomplete:
		if strings.Contains(c.Message, ": ") { // the message says what helps, as of a StatefulSet that makes its pods in order
			return ""
		}
		return "what keeps the other members from being created, such as a ResourceQuota: the events of their owner say it."
	}
	return "nothing: wait."
}
