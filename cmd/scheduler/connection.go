package main

import (
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/placement"
)

// askTimeout bounds one question to the API server.
const askTimeout = 10 * time.Second

// connectionOf returns how the scheduler's flags and configuration reach the API server, and false where they are such that
// the scheduler cannot start.
func connectionOf(c *cobra.Command) (*rest.Config, bool) {
	value := func(flag string) string {
		if f := c.Flags().Lookup(flag); f != nil {
			return f.Value.String()
		}
		return ""
	}
	kubeconfig := value("kubeconfig")
	if file := value("config"); file != "" { // which makes the scheduler pass over --kubeconfig
		loaded, err := options.LoadConfigFromFile(klog.Background(), file)
		if err != nil || !startable(loaded) {
			return nil, false
		}
		kubeconfig = loaded.ClientConnection.Kubeconfig
	}
	connection, err := clientcmd.BuildConfigFromFlags(value("master"), kubeconfig)
	if err != nil {
		return nil, false
	}
	connection.Timeout = askTimeout
	return connection, true
}

// startable reports whether a configuration and the arguments of Tandem's plugins are legal.
func startable(c *schedulerconfig.KubeSchedulerConfiguration) bool {
	if validation.ValidateKubeSchedulerConfiguration(c) != nil {
		return false
	}
	for i := range c.Profiles {
		for j := range c.Profiles[i].PluginConfig {
			if !legal(c.Profiles[i].PluginConfig[j].Args) {
				return false
			}
		}
	}
	return true
}

func legal(args runtime.Object) bool {
	switch args := args.(type) {
	case *config.GPUShareArgs:
		return len(config.ValidateGPUShareArgs(args, placement.Policies(), nil)) == 0
	case *config.GPUGangArgs:
		return len(config.ValidateGPUGangArgs(args, nil)) == 0
	case *config.GPUPreemptArgs:
		return len(config.ValidateGPUPreemptArgs(args, nil)) == 0
	}
	return true
}
