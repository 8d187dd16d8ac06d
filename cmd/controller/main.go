// Command controller keeps running work at the right size.
//
// Its feature "elastic" chooses the number of members of elastic gangs and lets surplus members leave. The scheduler
// carries out the rest; the two agree through ElasticTargets alone. Its feature "inference" chooses the sizes of inference fleets and
// the weights by which gateways divide their requests. Its feature "notebooks" parks notebooks in which nothing works.
// Its feature "placeable", which is off by default, answers Kueue whether a Workload fits on real devices.
// Its feature "node-memory", which is off by default, writes the memory of devices into Nodes, for autoscalers.
// With any features, it marks the GPUNodes of nodes whose agent is gone.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	ctrl "sigs.k8s.io/controller-runtime"
)

// gcPercent is how much garbage the controller lets come before it is collected, in percent of what lives. The controller has
// much in memory and little to do: a smaller number than Go's 100 saves memory, and costs time of little use for anything else.
const gcPercent = 25

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	c := command()
	if err := c.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}
