// Command scheduler is the stock kube-scheduler with Tandem's plugins.
//
// The command takes the flags of kube-scheduler; its usual KubeSchedulerConfiguration is deploy/scheduler/config.yaml.
// A configuration with an unknown field or an illegal value ends it at start with the path of the field.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of requests to the API server
	_ "k8s.io/component-base/metrics/prometheus/version"  // metric of the version
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // arguments of the plugins
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpuqueue"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

func main() {
	if err := serveVersion(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	gates := newGates()
	os.Exit(gates.exitCode(cli.Run(command(gates, newCaches(gates.end)))))
}

func command(gates *gates, caches *caches) *cobra.Command {
	shares := &gpushare.Factory{}
	room := machine.New(func() machine.Shares { return shares.Plugin() })
	gangs := gpugang.NewFactory(func() gpugang.Shares {
		if p := shares.Plugin(); p != nil {
			return p
		}
		return nil
	}, room)
	preempt := gpupreempt.NewFactory(func() gpupreempt.Shares {
		if p := shares.Plugin(); p != nil {
			return p
		}
		return nil
	}, room)
	published := &serving{}
	c := app.NewSchedulerCommand(
		app.WithPlugin(gpushare.Name, caches.with(published.with(shares, room))), app.WithPlugin(gpugang.Name, caches.with(dumping(room, os.Stdout, gangs))),
		app.WithPlugin(gpupreempt.Name, caches.with(preempt)), app.WithPlugin(gpuqueue.Name, gpuqueue.New))
	c.Use = "tandem-scheduler"
	published.wrap(c)
	gates.wrap(c)
	return c
}
