package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// The clock of the demo's controller: see cmd/controller/clock_fast.go.
const (
	fastClock  = "fastclock"
	clockSpeed = 30
	clockBegin = "TANDEM_FASTCLOCK_BEGIN"
	clockRuns  = "TANDEM_FASTCLOCK_SPEED"
)

// quick returns the time of the controller's clock.
func (c *cluster) quick() time.Time { return c.began.Add(clockSpeed * time.Since(c.began)) }

// startController starts the controller under its own account. A real one looks at the jobs each ten seconds, gives members five seconds
// notice, and keeps the replicas of a fleet for minutes after its load has fallen; nobody wants to wait for that here.
func (c *cluster) startController(ctx context.Context) error {
	kubeconfig, err := c.plane.ServiceAccount(ctx, "tandem-system", "tandem-controller")
	if err != nil {
		return err
	}
	ports, err := sandbox.FreePorts(1)
	if err != nil {
		return err
	}
	c.controllerMetrics = fmt.Sprintf("%s:%d", loopback, ports[0])
	cmd := exec.Command(c.controller, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--metrics-bind-address="+c.controllerMetrics, "--health-probe-bind-address=0",
		"--elastic-interval=1s", "--elastic-notice=1s", "--elastic-admit-within=24h", "--inference-interval=1s", "--inference-patience=1m", "--notebooks-interval=1s", "--notebooks-notice=10s")
	cmd.Env = append(os.Environ(), clockBegin+"="+c.began.Format(time.RFC3339Nano), fmt.Sprintf("%s=%d", clockRuns, clockSpeed))
	c.sizing, err = c.plane.Processes().Start("controller", cmd)
	return err
}

// startActivator starts the activator under its own account.
func (c *cluster) startActivator(ctx context.Context) error {
	kubeconfig, err := c.plane.ServiceAccount(ctx, "tandem-system", "tandem-activator")
	if err != nil {
		return err
	}
	ports, err := sandbox.FreePorts(2)
	if err != nil {
		return err
	}
	c.activatorAt, c.activatorMetrics = fmt.Sprintf("%s:%d", loopback, ports[0]), fmt.Sprintf("%s:%d", loopback, ports[1])
	_, err = c.plane.Processes().Start("activator", exec.Command(c.activator, "--kubeconfig="+kubeconfig, "--bind-address="+c.activatorAt, "--probe-bind-address="+c.activatorMetrics))
	return err
}

// startControllers runs Kubernetes' own controllers in this process, for the namespace of the users: those of Jobs, of Deployments, of StatefulSets,
// and of the endpoints of Services.
func (c *cluster) startControllers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	factory := informers.NewSharedInformerFactoryWithOptions(c.admin, 0, informers.WithNamespace(namespace))
	all, err := kubernetesControllers(ctx, c.admin, factory)
	if err != nil {
		cancel()
		return err
	}
	factory.Start(ctx.Done())
	var running sync.WaitGroup
	for _, run := range all {
		running.Go(func() { run(ctx, 1) })
	}
	c.controllers = func() {
		cancel()
		running.Wait()
		factory.Shutdown()
	}
	return nil
}

// kubernetesControllers returns what runs each controller until its context ends. That of Jobs makes a member again after a pause, as short for its
// usual 10 seconds as the clock of Tandem's controller is fast.
func kubernetesControllers(ctx context.Context, client kubernetes.Interface, f informers.SharedInformerFactory) ([]func(context.Context, int), error) {
	job.DefaultJobPodFailureBackOff = 10 * time.Second / clockSpeed
	pods, services, nodes, claims := f.Core().V1().Pods(), f.Core().V1().Services(), f.Core().V1().Nodes(), f.Core().V1().PersistentVolumeClaims()
	apps := f.Apps().V1()
	jobs, err := job.NewController(ctx, client, pods, f.Batch().V1().Jobs(), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("start Kubernetes' controller of Jobs: %w", err)
	}
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), pods, client)
	if err != nil {
		return nil, fmt.Errorf("start Kubernetes' controller of Deployments: %w", err)
	}
	const burst, perSlice = 500, 100 // as in kube-controller-manager
	return []func(context.Context, int){
		jobs.Run, deployments.Run,
		replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), pods, client, burst).Run,
		statefulset.NewStatefulSetController(ctx, pods, apps.StatefulSets(), claims, apps.ControllerRevisions(), client).Run,
		endpointslice.NewController(ctx, pods, services, nodes, f.Discovery().V1().EndpointSlices(), perSlice, client, 0).Run,
	}, nil
}
