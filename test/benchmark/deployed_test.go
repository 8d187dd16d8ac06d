//go:build bench

package benchmark

import (
	"fmt"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// asDeployed gives a plugin the limits of requests that deploy/scheduler/config.yaml sets. scheduler_perf takes profiles from
// that file, and no limits: its one client, of the scheduler and of the test, has 5,000 a second.
func asDeployed(handle fwk.Handle) (fwk.Handle, error) {
	root, err := sandbox.Root()
	if err != nil {
		return nil, err
	}
	config, err := options.LoadConfigFromFile(klog.Background(), filepath.Join(root, "deploy", "scheduler", "config.yaml"))
	if err != nil {
		return nil, err
	}
	full, ok := handle.(framework.Framework)
	if !ok {
		return nil, fmt.Errorf("the handle is a %T, and not the framework", handle)
	}
	limited := rest.CopyConfig(handle.KubeConfig())
	limited.QPS, limited.Burst = config.ClientConnection.QPS, int(config.ClientConnection.Burst)
	return &deployed{Framework: full, config: limited}, nil
}

// deployed is a framework with other limits of requests.
type deployed struct {
	framework.Framework
	config *rest.Config
}

// KubeConfig returns the configuration with the limits.
func (d *deployed) KubeConfig() *rest.Config { return d.config }
