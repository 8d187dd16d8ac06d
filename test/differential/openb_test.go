package differential

import (
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/racedetector"
)

var openbPolicy = flag.String("openb", "tandem", "the policy by which TestOpenb fills the openb cluster, in under a minute; -openb= skips it")

// TestOpenb: on the openb trace, 10,866 pods in the order of one seed for 1,213 nodes, the scheduler allocates what the
// simulator says, within 0.1 point.
func TestOpenb(t *testing.T) {
	if racedetector.On {
		t.Skip("it takes 15 minutes under the race detector, and TestPlacements runs the same goroutines there")
	}
	data := os.Getenv("TANDEM_DATA")
	if data == "" || *openbPolicy == "" {
		t.Skip("TANDEM_DATA names no folder with the openb trace, or -openb no policy")
	}
	load := func(name string) *traces.Trace {
		trace, err := traces.Load(filepath.Join(data, "openb_fgd", name))
		must.OK(t, err)
		return trace
	}
	f := experiment.Filling{
		Nodes: load("openb_node_list_gpu_node.csv").Hosts, Pods: load("openb_pod_list_default.csv").Jobs, Inflate: 1.3,
	}
	s, err := f.Setup(42)
	must.OK(t, err)
	for i := range s.Jobs { // repeats have names with a "#", which pods may not have
		r := &s.Jobs[i].Request
		r.UID = podName(string(r.UID))
	}
	h, r := start(t, s, *openbPolicy)
	allocated, same := 0.0, 0
	for i := range s.Jobs {
		got, refusal := r.submit(pod(&s.Jobs[i]))
		want := &h.Outcomes[i]
		if where(&got) == where(&want.Assignment) {
			same++
		} else if same == i {
			t.Logf("the first difference is pod %d, %s: the simulator places it on %q, the scheduler on %q%s", i, want.Pod,
				where(&want.Assignment), where(&got), refusal)
		}
		for _, c := range got.Containers {
			allocated += float64(c.Share.Slots) * float64(c.Share.Devices) / float64(traces.SlotsPerDevice)
		}
	}
	figure := 100 * allocated * 1000 / float64(h.Capacity)
	simulated, ok := h.AllocatedAt(130)
	t.Logf("policy %s: the scheduler allocates %.2f %% of the GPUs, the simulator %.2f %%; %d of %d pods have the same place",
		*openbPolicy, figure, simulated, same, len(s.Jobs))
	if !ok || math.Abs(figure-simulated) > 0.1 {
		t.Errorf("the figures differ by more than 0.1 point")
	}
	if h.Count(sim.Dropped) == 0 {
		t.Error("no pod was dropped: the trace did not fill the cluster")
	}
}
