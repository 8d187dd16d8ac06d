package e2e

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/kustomize/api/resmap"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/cluster"
)

// nodeName is the name of the only node.
const nodeName = "gpu-1"

// Cluster is the running cluster.
type Cluster struct {
	layout  layout
	plane   *sandbox.ControlPlane
	client  kubernetes.Interface
	dynamic dynamic.Interface
	deploy  resmap.ResMap
	tools   map[string]string

	containerd, kubelet, scheduler, mpsHost, agent, controller *sandbox.Process
	dns                                                        net.PacketConn
	kubeletKubeconfig                                          string
	schedulerArgs, agentArgs                                   []string
	// left is when a pod that is gone last wrote to shared memory; zero until one has.
	left time.Time
}

// part of the start of a cluster.
type part struct {
	what string
	do   func(*Cluster, context.Context) error
}

// Start starts everything and returns when the node advertises its slots. All of it ends with the test.
func Start(t *testing.T) *Cluster {
	t.Helper()
	return start(t, part{"manifests of deploy/", (*Cluster).applyDeploy}, part{"cluster's DNS", (*Cluster).startDNS},
		part{"containerd and the kubelet", (*Cluster).startNode}, part{"scheduler, agent and controller", (*Cluster).startTandem})
}

// StartBare starts a cluster without Tandem that can pull Tandem's images. All of it ends with the test.
func StartBare(t *testing.T) *Cluster {
	t.Helper()
	return start(t, part{"cluster's DNS", (*Cluster).startDNS}, part{"containerd and the kubelet", (*Cluster).startNode},
		part{"registry and default scheduler", (*Cluster).startPullable})
}

// start starts a control plane, and then further parts.
func start(t *testing.T, further ...part) *Cluster {
	t.Helper()
	if os.Getenv(Switch) == "" {
		t.Skipf("needs root, containerd and a real kubelet: run make e2e (it sets %s=1)", Switch)
	}
	c := &Cluster{layout: theLayout()}
	t.Cleanup(func() {
		if t.Failed() {
			c.reportProcesses(t)
		}
		if c.plane != nil {
			c.plane.Stop()
		}
		if c.dns != nil {
			_ = c.dns.Close() // nothing was written
		}
	})
	c.do(t.Context(), t, part{"control plane", (*Cluster).startControlPlane}) // no deadline: it may wait for those of others
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	for _, step := range further {
		c.do(ctx, t, step)
	}
	return c
}

func (c *Cluster) do(ctx context.Context, t *testing.T, step part) {
	t.Helper()
	begin := time.Now()
	if err := step.do(c, ctx); err != nil {
		t.Fatalf("start %s: %v", step.what, err)
	}
	t.Logf("started %s in %.1f s", step.what, time.Since(begin).Seconds())
}

func (c *Cluster) startControlPlane(ctx context.Context) error {
	var err error
	if c.tools, err = sandbox.Tools(ctx, clusterPrograms()...); err != nil {
		return err
	}
	c.plane, err = sandbox.Start(ctx, sandbox.Options{
		Dir:               c.layout.controlPlane(),
		Authorization:     "Node,RBAC",
		ControllerManager: true,
		Kubernetes:        kubernetesVersion,
		APIServerArgs:     []string{"--enable-admission-plugins=NodeRestriction"},
	})
	if err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.plane.Admin()); err != nil {
		return err
	}
	c.dynamic, err = dynamic.NewForConfig(c.plane.Admin())
	return err
}

// applyDeploy applies deploy/ as an administrator would, without what runs here as a process.
func (c *Cluster) applyDeploy(ctx context.Context) error {
	root, err := sandbox.Root()
	if err != nil {
		return err
	}
	if c.deploy, err = cluster.Apply(ctx, c.plane, "deploy"); err != nil || !podsFromServer() {
		return err
	}
	rbac, err := os.ReadFile(filepath.Join(root, "deploy", "components", "pods-from-apiserver", "rbac.yaml"))
	if err != nil {
		return err
	}
	return c.plane.Apply(ctx, rbac)
}

// configOf returns the configuration file that deploy/ mounts into a component: the ConfigMap whose name begins so.
func (c *Cluster) configOf(prefix string) (string, error) {
	for _, r := range c.deploy.Resources() {
		if r.GetKind() == "ConfigMap" && strings.HasPrefix(r.GetName(), prefix) {
			return r.GetDataMap()["config.yaml"], nil
		}
	}
	return "", fmt.Errorf("find configuration of %s: no such ConfigMap in deploy/", prefix)
}

// poll calls check until it returns nil. When ctx ends before, it returns the last error that says something else.
func poll(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, last)
		case <-ticker.C:
		}
	}
}

// awaitSocket waits until a process listens on the socket, or the expected process has ended.
func awaitSocket(ctx context.Context, path string, process *sandbox.Process) error {
	return poll(ctx, path, func(context.Context) error {
		select {
		case <-process.Done():
			return fmt.Errorf("the process ended: %w", process.Err())
		default:
		}
		connection, err := net.Dial("unix", path)
		if err != nil {
			return err
		}
		return connection.Close()
	})
}
