package gpushare

import (
	"testing"
	"time"
)

func TestScarcity(t *testing.T) {
	type step struct {
		after   time.Duration
		healthy int64
		idle    int64
		waits   bool
		want    bool
	}
	for name, c := range map[string]struct {
		percent int64
		steps   []step
	}{
		"few are idle": {10, []step{
			{0, 100, 11, false, false},
			{0, 100, 10, false, true},
			{scarcePause, 100, 15, false, true}, // not half as many again
			{0, 100, 16, false, false},
			{0, 100, 12, false, false},
		}},
		"not for every pod that comes and goes": {10, []step{
			{0, 100, 10, false, true},
			{scarcePause - 1, 100, 50, false, true},
			{0, 100, 10, false, true},
			{scarcePause - 1, 100, 50, false, true},
			{1, 100, 50, false, false},
		}},
		"a pod waits": {10, []step{
			{0, 100, 90, true, true},
			{time.Second, 100, 90, false, true},
			{scarcePause, 100, 90, false, false},
		}},
		"a small cluster":           {10, []step{{0, 2, 1, false, false}, {0, 2, 0, false, true}, {scarcePause, 2, 1, false, false}}},
		"none at all":               {10, []step{{0, 0, 0, true, false}, {0, 8, 8, false, false}, {0, 8, 0, false, true}, {scarcePause, 0, 0, false, true}}},
		"only when nothing is idle": {0, []step{{0, 100, 1, false, false}, {0, 100, 0, false, true}, {scarcePause, 100, 1, false, false}}},
		"always":                    {100, []step{{0, 100, 100, false, true}, {scarcePause, 100, 100, false, true}}},
	} {
		t.Run(name, func(t *testing.T) {
			s, now := scarcity{percent: c.percent}, noon
			for i, step := range c.steps {
				now = now.Add(step.after)
				if got := s.look(now, load{healthy: step.healthy, idle: step.idle}, step.waits); got != step.want {
					t.Errorf("step %d: scarce %v, want %v", i, got, step.want)
				}
			}
		})
	}
}

// Sick devices, and those of nodes that take no pods, do not count; a hold does not make a device busy.
func TestLoadCountsHealthyDevices(t *testing.T) {
	d := newDesk(t, gpuNode("n1", 3), gpuNode("n2", 2), gpuNode("n3", 4))
	sick := gpuNode("n2", 2)
	sick.Status.Devices[1].Health, sick.Status.Devices[1].Reason = "Unhealthy", "XID79"
	d.setGPUNode(sick)
	d.plugin.state.replace("n3", d.plugin.state.nodes["n3"].empty, notReady)
	d.runs(tolerating("1.5", tenant("r", "", 5)), "n1", 1)
	d.runs(tenant("s", "", 5), "n1", 2)
	if got, want := d.plugin.state.refresh(d.logger(), d.nodes), (load{healthy: 4, idle: 2, promises: 1}); got != want {
		t.Errorf("load %+v, want %+v", got, want)
	}
}
