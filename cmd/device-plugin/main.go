// Command device-plugin is the node agent: it offers the slots of the node's GPUs to the kubelet and gives each
// container the devices that the scheduler chose.
//
// The program runs as root on every GPU node (deploy/agent). A configuration with an unknown field or an illegal value
// and a second agent on the node end it at start with a message that says so. Without an NVIDIA driver it idles and
// says so in the node's GPUNode.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/cli"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/deviceplugin"
	"github.com/tandem-gpu/tandem/internal/agent/gpunode"
	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
	"github.com/tandem-gpu/tandem/internal/version"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func main() {
	os.Exit(cli.Run(command()))
}

func command() *cobra.Command {
	var options deviceplugin.Options
	var configFile, kubeconfig string
	var share mps.Options
	logging := logsapi.NewLoggingConfiguration()
	c := &cobra.Command{
		Use: "tandem-device-plugin", Short: "Offers the slots of this node's GPUs to the kubelet", Args: cobra.NoArgs, SilenceUsage: true,
		Version: version.Get().String(),
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			if options.Config, err = config.Load(configFile); err != nil {
				return err
			}
			share.MultiUser, share.Launcher = options.Config.MPS.ManyUsers(), options.Config.MPS.Launcher
			share.CanaryTimeout = options.Config.Health.ProbeTimeout()
			options.Sharing = sharing.FromMPS(mps.NewV2(share))
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return run(ctx, options, kubeconfig)
		},
	}
	c.Flags().StringVar(&configFile, "config", "", "AgentConfiguration file; without it every model has 10 slots")
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file; without it the pod's own account is used")
	c.Flags().StringVar(&share.Dir, "mps-dir", "/run/tandem/mps", "folder for the pipes and logs of MPS, one folder per GPU")
	c.Flags().StringVar(&share.SharedMemory, "mps-shm-dir", "", "folder of the host that the MPS daemons see as /dev/shm; containers with a share get it as theirs; without it they keep their own")
	options.AddFlags(c.Flags())
	c.AddCommand(canaryCommand(), mpsHostCommand(), shmCommand())
	logsapi.AddFlags(logging, c.Flags())
	return c
}

func run(ctx context.Context, options deviceplugin.Options, kubeconfig string) error {
	klog.FromContext(ctx).Info("Starting Tandem's node agent", "version", version.Get().String())
	rest, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(rest)
	if err != nil {
		return err
	}
	if options.Pods, err = podsource.NewAPI(rest); err != nil {
		return err
	}
	options.GPUNodes = client.Resource(v1alpha1.GPUNodes)
	options.Self = client.Resource(gpunode.SelfReviews)
	options.OpenDriver = openDriver
	agent, err := deviceplugin.New(options)
	if err != nil {
		return err
	}
	return agent.Run(ctx)
}

// openDriver opens NVML for as long as the process lives.
func openDriver() (deviceplugin.Driver, error) {
	library, err := nvml.Open()
	if err != nil {
		return nil, err
	}
	return deviceplugin.FromNVML(library), nil
}
