package deviceplugin

import (
	"os"

	"github.com/spf13/pflag"
)

// AddFlags registers the flags that say where everything is.
func (o *Options) AddFlags(s *pflag.FlagSet) {
	s.StringVar(&o.NodeName, "node-name", os.Getenv("NODE_NAME"), "name of this node")
	s.StringVar(&o.DevicePluginDir, "device-plugin-dir", "/var/lib/kubelet/device-plugins", "the kubelet's folder of device plugins")
	s.StringVar(&o.PodResourcesSocket, "pod-resources-socket", "/var/lib/kubelet/pod-resources/kubelet.sock", "the kubelet's pod-resources API")
	s.StringVar(&o.PodsAPISocket, "pods-api-socket", "/var/lib/kubelet/pods-api/pods-api.sock", "the kubelet's Pods API")
	s.StringVar(&o.CDIDir, "cdi-dir", "/var/run/cdi", "folder for CDI specs; the container runtime reads it")
	s.StringVar(&o.StateDir, "state-dir", "/var/lib/tandem", "folder for the agent's own checkpoint")
	s.StringVar(&o.DevRoot, "dev-root", "/", "folder that has dev/nvidia* of the host in it")
	s.StringVar(&o.HostRoot, "host-root", "/", "where this process sees the root folder of the host; the driver (driver.root) is looked for below it")
	s.StringVar(&o.SharedMemory, "shm-sweep-dir", "", "where this process sees the folder of --mps-shm-dir; what tenants that are gone left there is removed; without it nothing is")
	s.StringVar(&o.HTTPAddress, "http-address", ":9410", "address of /healthz, /readyz and /metrics")
}
