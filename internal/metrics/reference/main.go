// Command reference writes docs/reference/metrics.md: the metrics of the agent, of the scheduler, with what
// it learns, of the controller, of the activator and of shadow mode.
//
// The tables are those of the collectors.
package main

import (
	"fmt"
	"os"

	"github.com/tandem-gpu/tandem/internal/activator"
	agent "github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	"github.com/tandem-gpu/tandem/internal/controller/fleets"
	"github.com/tandem-gpu/tandem/internal/controller/notebooks"
	"github.com/tandem-gpu/tandem/internal/controller/placeable"
	"github.com/tandem-gpu/tandem/internal/controller/refusals"
	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/scheduler/snapshots"
	"github.com/tandem-gpu/tandem/internal/shadow/families"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

func main() {
	if err := metrics.WriteReference(os.Stdout, sections()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sections returns the parts of the page.
func sections() []metrics.Section {
	return append(agent.Sections(), metrics.Section{
		Title:    "Scheduler",
		Text:     "Served by the scheduler at `/metrics`, with the metrics of kube-scheduler and `tandem_build_info`, as the agent has it.",
		Families: gpushare.Families(),
	}, metrics.Section{
		Title:    "Gangs",
		Text:     "These metrics of the scheduler are about gangs.",
		Families: gpugang.Families(),
	}, metrics.Section{
		Title:    "Preemption",
		Text:     "These metrics of the scheduler are about evictions for pods and gangs of a higher priority.",
		Families: gpupreempt.Families(),
	}, metrics.Section{
		Title:    "Learning",
		Text:     "These metrics of the scheduler are about workloads that it learns.",
		Families: learning.Families(),
	}, metrics.Section{
		Title:    "Snapshots",
		Text:     "These metrics of the scheduler are about its snapshot and the requests for it.",
		Families: snapshots.Families(),
	}, metrics.Section{
		Title:    "Controller",
		Text:     "Served by the controller at `/metrics`, with the metrics of controller-runtime and `tandem_build_info`.",
		Families: elasticity.Families(),
	}, metrics.Section{
		Title:    "Inference fleets",
		Text:     "These metrics of the controller are about InferenceFleets.",
		Families: fleets.Families(),
	}, metrics.Section{
		Title:    "Notebooks",
		Text:     "These metrics of the controller are about notebooks.",
		Families: notebooks.Families(),
	}, metrics.Section{
		Title:    "Starts that are refused",
		Text:     "The controller evicts pods that an agent does not let start, and counts these evictions ([decision](../decisions/0054-starts-that-are-refused.md)).",
		Families: refusals.Families(),
	}, metrics.Section{
		Title:    "Kueue's AdmissionChecks",
		Text:     "These metrics of the controller are about its answers to Kueue, if its feature placeable is on ([guide](../guides/kueue.md)).",
		Families: placeable.Families(),
	}, metrics.Section{
		Title:    "Activator",
		Text:     "Served by the activator at `/metrics`, with `tandem_build_info`, as the agent has it.",
		Families: activator.Families(),
	}, metrics.Section{
		Title:    "Shadow mode",
		Text:     "Served by shadow mode at `/metrics`: the figures of its report, for both worlds ([guide](../guides/shadow.md)), with `tandem_build_info`, as the agent has it.",
		Families: families.All(),
	})
}
