// Package sources finds the families of metrics by their names, for dashboards and alerts: those of Tandem's programs in the tables that
// their collectors are built from, and the few of Prometheus and kube-scheduler that dashboards need too.
//
// A function takes the name without the prefix that all metrics of the table have. A name that no table has is a mistake of the dashboard,
// and ends the program.
package sources

import (
	"github.com/tandem-gpu/tandem/internal/activator"
	agent "github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	"github.com/tandem-gpu/tandem/internal/controller/fleets"
	"github.com/tandem-gpu/tandem/internal/controller/notebooks"
	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

// The jobs of Prometheus by which it scrapes each program, as deploy/monitoring/prometheus.yaml names them.
const (
	JobAgent      = "tandem-agent"
	JobScheduler  = "tandem-scheduler"
	JobController = "tandem-controller"
	JobActivator  = "tandem-activator"
)

// Jobs returns all of them.
func Jobs() []string { return []string{JobActivator, JobAgent, JobController, JobScheduler} }

// Share returns a family of the shares that containers have of devices.
func Share(name string) metrics.Family { return metrics.Find(agent.PodFamilies(), "tandem_pod_"+name) }

// Device returns a family of devices.
func Device(name string) metrics.Family {
	return metrics.Find(agent.DeviceFamilies(), "tandem_device_"+name)
}

// Agent returns a family of the agent itself.
func Agent(name string) metrics.Family {
	return metrics.Find(agent.AgentFamilies(), "tandem_agent_"+name)
}

// Scheduler returns a family of the plugin GPUShare.
func Scheduler(name string) metrics.Family {
	return metrics.Find(gpushare.Families(), "tandem_scheduler_"+name)
}

// Gang returns a family of the plugin GPUGang.
func Gang(name string) metrics.Family {
	return metrics.Find(gpugang.Families(), "tandem_scheduler_gang_"+name)
}

// Preemption returns a family of the plugin GPUPreempt.
func Preemption(name string) metrics.Family {
	return metrics.Find(gpupreempt.Families(), "tandem_scheduler_preemption_"+name)
}

// Learning returns a family of what the scheduler learns.
func Learning(name string) metrics.Family {
	return metrics.Find(learning.Families(), "tandem_learning_"+name)
}

// Elastic returns a family of the controller about elastic gangs.
func Elastic(name string) metrics.Family {
	return metrics.Find(elasticity.Families(), "tandem_controller_elastic_"+name)
}

// Fleet returns a family of the controller about inference fleets.
func Fleet(name string) metrics.Family {
	return metrics.Find(fleets.Families(), "tandem_controller_fleet_"+name)
}

// Notebook returns a family of the controller about notebooks.
func Notebook(name string) metrics.Family {
	return metrics.Find(notebooks.Families(), "tandem_controller_notebook_"+name)
}

// Activator returns a family of the activator.
func Activator(name string) metrics.Family {
	return metrics.Find(activator.Families(), "tandem_activator_"+name)
}

// Stock returns a family of Prometheus or of kube-scheduler, by its whole name.
func Stock(name string) metrics.Family { return metrics.Find(stock, name) }

// stock are the families that Prometheus makes itself and that kube-scheduler 1.37 serves (pkg/scheduler/metrics, component-base). A test
// compares those that dashboards and alerts use with what programs serve.
var stock = []metrics.Family{
	{Name: "leader_election_master_status", Type: metrics.Gauge, Labels: []string{"name"}},
	{Name: "scheduler_pending_pods", Type: metrics.Gauge, Labels: []string{"queue"}},
	{Name: "scheduler_pod_scheduling_sli_duration_seconds", Type: metrics.Histogram, Labels: []string{"attempts"}},
	{Name: "scheduler_schedule_attempts_total", Type: metrics.Counter, Labels: []string{"result", "profile"}},
	{Name: "scheduler_scheduling_attempt_duration_seconds", Type: metrics.Histogram, Labels: []string{"result", "profile"}},
	{Name: "scheduler_unschedulable_pods", Type: metrics.Gauge, Labels: []string{"plugin", "profile"}},
	{Name: "up", Type: metrics.Gauge},
}
