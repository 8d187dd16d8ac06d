package e2e

import (
	"testing"
)

// TestEndToEnd runs the scenarios one after the other on one cluster. Each begins with all slots free.
func TestEndToEnd(t *testing.T) {
	c := Start(t)
	for _, s := range []struct {
		name string // also of the namespace
		run  func(*Tenant)
	}{
		{"init-and-app-containers-each-get-their-own-share", shares},
		{"what-a-pod-leaves-in-shared-memory-is-bounded", leavesMemory},
		{"two-pods-bound-together-keep-their-devices", swap},
		{"pods-survive-a-restart-of-the-kubelet", restartOfKubelet},
		{"pods-survive-a-crash-of-the-agent", crashOfAgent},
		{"pods-survive-an-upgrade-of-the-agent", upgradeOfAgent},
		{"an-agent-that-crashes-again-and-again-costs-a-pod-a-pause", crashLoop},
		{"pods-survive-a-crash-of-the-scheduler", crashOfScheduler},
		{"a-forged-assignment-is-denied", forgedDenied},
		{"without-policies-the-bind-overwrites-a-forged-assignment", forgedOverwritten},
		{"without-policies-no-pod-past-the-scheduler-starts", pastScheduler},
		{"without-policies-no-forgery-takes-slots-that-are-held", forgedCapacity},
		{"deleting-a-pod-frees-its-share", deletion},
		{"an-illegal-request-pends-and-says-what-is-legal", illegal},
		{"a-corrected-annotation-lets-the-pod-run", corrected},
		{"no-device-holds-more-than-its-slots", capacity},
		{"a-gang-of-four-starts-together-on-one-node", gangTogether},
		{"a-member-of-a-gang-starts-without-its-siblings", gangStraggler},
		{"a-member-whose-bind-fails-is-bound-where-its-place-was-kept", gangRepaired},
		{"a-gang-that-stays-half-bound-is-released-whole", gangReleased},
		{"a-preemptor-runs-on-the-share-that-its-victim-leaves", preemption},
		{"surplus-goes-before-a-gang-and-a-gang-as-a-whole", gangPreemption},
		{"a-training-grows-and-shrinks-while-it-runs", elasticTraining},
		{"a-lost-gpu-takes-no-pods-until-it-is-back", lostGPU},
		{"an-xid-takes-the-slots-of-its-gpu-alone-until-the-reset", xid},
		{"a-fault-of-mps-is-found-and-cured", fault},
		{"a-wedge-of-mps-is-found-and-cured", wedge},
		{"eight-pods-work-through-crash-and-upgrade-of-the-agent", upgradeUnderLoad},
		{"init-containers-survive-a-restart-of-the-kubelet", kubeletRestartInit},
		{"a-pod-that-hangs-at-its-end-harms-nobody", eviction},
		{"what-was-left-in-shared-memory-is-removed", memoryRemoved},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.run(c.Tenant(t, s.name)) }) && c.broken() {
			t.Fatal("the cluster is broken: the other scenarios would say nothing")
		}
	}
}
