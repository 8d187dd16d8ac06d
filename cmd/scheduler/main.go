// Command scheduler is the stock kube-scheduler with Tandem's plugins.
//
// It takes the flags of kube-scheduler; deploy/scheduler/config.yaml is the KubeSchedulerConfiguration that it is meant
// to run with. A configuration with an unknown field or an illegal value ends it at start with the path of the field.
package main

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of requests to the API server
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the version
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // arguments of the plugins
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

func main() {
	groups := newPodGroups()
	os.Exit(groups.exitCode(cli.Run(command(groups))))
}

func command(groups *podGroups) *cobra.Command {
	shares := &gpushare.Factory{}
	gangs := &gpugang.Factory{Shares: func() gpugang.Shares {
		if p := shares.Plugin(); p != nil {
			return p
		}
		return nil
	}}
	preempt := gpupreempt.NewFactory(func() gpupreempt.Shares {
		if p := shares.Plugin(); p != nil {
			return p
		}
		return nil
	}, func() gpupreempt.Gangs {
		if p := gangs.Plugin(); p != nil {
			return p
		}
		return nil
	})
	c := app.NewSchedulerCommand(
		app.WithPlugin(gpushare.Name, shares.New), app.WithPlugin(gpugang.Name, gangs.New), app.WithPlugin(gpupreempt.Name, preempt))
	c.Use = "tandem-scheduler"
	groups.wrap(c)
	return c
}
