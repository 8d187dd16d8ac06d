package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestAgentReportsItsInput(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	a, err := NewAgent(r)
	if err != nil {
		t.Fatal(err)
	}
	a.SetDevices(3, 1)
	a.SetSlots("GPU-a", 4, 6, 0)
	a.SetDrift(1)
	a.PreStarted(3*time.Millisecond, "")
	a.PreStarted(3*time.Millisecond, "NoAssignment")
	a.SetWatched(true)
	a.Published(errors.New("down"))
	want := `
# HELP tandem_agent_assignment_drift Containers whose devices or limits differ from their pod's assignment. Must be 0.
# TYPE tandem_agent_assignment_drift gauge
tandem_agent_assignment_drift 1
# HELP tandem_agent_devices Devices of the node, by health.
# TYPE tandem_agent_devices gauge
tandem_agent_devices{health="healthy"} 3
tandem_agent_devices{health="unhealthy"} 1
# HELP tandem_agent_gpunode_writes_total Writes of the GPUNode status, by result.
# TYPE tandem_agent_gpunode_writes_total counter
tandem_agent_gpunode_writes_total{result="error"} 1
tandem_agent_gpunode_writes_total{result="success"} 0
# HELP tandem_agent_prestart_failures_total Container starts that were refused, by reason.
# TYPE tandem_agent_prestart_failures_total counter
tandem_agent_prestart_failures_total{reason="NoAssignment"} 1
# HELP tandem_agent_registered 1 while the kubelet watches the agent's slots, else 0.
# TYPE tandem_agent_registered gauge
tandem_agent_registered 1
# HELP tandem_agent_slots Slots of a device, by state: held by containers, free or unhealthy.
# TYPE tandem_agent_slots gauge
tandem_agent_slots{device="GPU-a",state="free"} 4
tandem_agent_slots{device="GPU-a",state="held"} 6
tandem_agent_slots{device="GPU-a",state="unhealthy"} 0
`
	names := []string{
		"tandem_agent_assignment_drift", "tandem_agent_devices", "tandem_agent_gpunode_writes_total",
		"tandem_agent_prestart_failures_total", "tandem_agent_registered", "tandem_agent_slots",
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
}
