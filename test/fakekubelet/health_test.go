package fakekubelet_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func TestUnhealthyDevicesLeaveTheNodesAllocatable(t *testing.T) {
	b := newBench(t)
	b.plugin.lists <- append(healthy("s0", "s1", "s2"), &pluginapi.Device{ID: "s3", Health: pluginapi.Unhealthy})
	b.awaitAllocatable("3")
	b.plugin.server.Stop()
	b.awaitAllocatable("0")
}

// A restarted kubelet knows from its checkpoint who holds what, and lets containers run.
func TestRestartKeepsDevicesAndContainers(t *testing.T) {
	b := newBench(t)
	before := b.create("before", nil, []v1.Container{ask("main", 3)})
	b.awaitRunning(before)
	b.plugin.take()
	started := b.kubelet.Containers()[0].Started
	b.stop()
	b.start()
	b.plugin.serve(t) // the kubelet removed the socket
	b.plugin.register(t, healthy("s0", "s1", "s2", "s3"))
	b.awaitAllocatable("4")
	after := b.create("after", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(after)
	diff(t, "calls", []string{"options", "prefer 1 of {s3} with {}", "allocate {s3}", "prestart {s3}"}, b.plugin.take())
	for _, c := range b.kubelet.Containers() {
		if c.UID == string(before.UID) && !c.Started.Equal(started) {
			t.Errorf("the container started again at %v, after %v", c.Started, started)
		}
	}
	diff(t, "checkpoint", map[string]string{"before/main": "{s0 s1 s2}", "after/main": "{s3}"}, b.checkpoint(before, after))
}
