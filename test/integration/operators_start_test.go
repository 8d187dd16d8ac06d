package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/statefulset"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// startTrainingOperator starts Kubeflow's training operator without its webhooks. It reads a certificate from a fixed place.
func (c *gangCluster) startTrainingOperator(t *testing.T) {
	t.Helper()
	ports, err := sandbox.FreePorts(3)
	must.OK(t, err)
	const namespace, secret = "kubeflow", "training-operator-webhook-cert"
	if _, err := c.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.CoreV1().Secrets(namespace).Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.TempDir(), "k8s-webhook-server")
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.certificates(t, filepath.Join(dir, "serving-certs"))
	c.operator(t, "github.com/kubeflow/training-operator", "./cmd/training-operator.v1", "--enable-scheme=pytorchjob",
		fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports[0]), fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[1]),
		fmt.Sprintf("--webhook-server-port=%d", ports[2]))
}

// startTrainer starts Kubeflow's Trainer, which makes JobSets, without its webhooks. It begins once its certificates are in the place where
// those of the training operator are too. It writes PodGroups of scheduling.x-k8s.io, which the cluster must serve.
func (c *gangCluster) startTrainer(t *testing.T) {
	t.Helper()
	const module = "github.com/kubeflow/trainer/v2"
	for _, kind := range []string{"trainingruntimes", "clustertrainingruntimes"} {
		c.applySource(t, module, "manifests/base/crds/trainer.kubeflow.org_"+kind+".yaml")
	}
	c.plane.ApplyForTest(t.Context(), t, `apiVersion: v1
kind: Namespace
metadata: {name: kubeflow-system}
---
apiVersion: v1
kind: Secret
metadata: {name: kubeflow-trainer-webhook-cert, namespace: kubeflow-system}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validator.trainer.kubeflow.org}
webhooks: []
`)
	ports, err := sandbox.FreePorts(2)
	must.OK(t, err)
	c.operator(t, module, "./cmd/trainer-controller-manager", fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[0]),
		fmt.Sprintf("--webhook-server-port=%d", ports[1]))
	awaitReady(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[0]))
}

// startMPIOperator starts Kubeflow's MPI operator. It answers health checks at the port 8080 of all addresses, and has no flag for that.
func (c *gangCluster) startMPIOperator(t *testing.T) {
	t.Helper()
	const namespace = "mpi-operator"
	if _, err := c.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.operator(t, "github.com/kubeflow/mpi-operator", "./cmd/mpi-operator", "--lock-namespace="+namespace)
}

// startKubeRay starts KubeRay, which has one webhook, off unless it is asked for.
func (c *gangCluster) startKubeRay(t *testing.T) {
	t.Helper()
	const module = "github.com/ray-project/kuberay/ray-operator"
	for _, kind := range []string{"rayjobs", "rayservices"} {
		c.applySource(t, module, "config/crd/bases/ray.io_"+kind+".yaml")
	}
	ports, err := sandbox.FreePorts(1)
	must.OK(t, err)
	c.operator(t, module, ".", "--enable-leader-election=false", "--metrics-addr=0", fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[0]))
	awaitReady(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[0]))
}

const lwsModule = "sigs.k8s.io/lws"

// startLeaderWorkerSet starts LeaderWorkerSet with its webhooks, one of which sees every pod, and the controller of StatefulSets, by which it
// makes pods.
func (c *gangCluster) startLeaderWorkerSet(t *testing.T) {
	t.Helper()
	c.applySource(t, lwsModule, "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml")
	c.startStatefulSets(t)
	ports, err := sandbox.FreePorts(2)
	must.OK(t, err)
	dir := t.TempDir()
	c.certificates(t, dir)
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: %d, certDir: %s}
internalCertManagement: {enable: false}
`, ports[0], ports[1], dir), 0o600); err != nil {
		t.Fatal(err)
	}
	c.operator(t, lwsModule, "./cmd", "--config", config)
	address := fmt.Sprintf("127.0.0.1:%d", ports[1])
	gangPoll(t, "the webhooks of LeaderWorkerSet listen", func() (bool, string) {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return false, err.Error()
		}
		return conn.Close() == nil, "closing the connection failed"
	})
	c.applyWebhooks(t, lwsModule, "config/webhook/manifests.yaml", ports[1])
}

// startStatefulSets runs Kubernetes' controller of StatefulSets in this process.
func (c *gangCluster) startStatefulSets(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory := informers.NewSharedInformerFactory(c.admin, 0)
	core, apps := factory.Core().V1(), factory.Apps().V1()
	sets := statefulset.NewStatefulSetController(ctx, core.Pods(), apps.StatefulSets(), core.PersistentVolumeClaims(), apps.ControllerRevisions(), c.admin)
	factory.Start(ctx.Done())
	done := make(chan struct{})
	go func() { defer close(done); sets.Run(ctx, 1) }()
	t.Cleanup(func() { cancel(); <-done; factory.Shutdown() })
}

// startGarbageCollector runs Kubernetes' garbage collector in this process: the objects that operators made go with their owners. It knows the
// kinds that the API server serves by now.
func (c *gangCluster) startGarbageCollector(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	client, err := metadata.NewForConfig(patient(c.api))
	must.OK(t, err)
	kinds, of := informers.NewSharedInformerFactory(c.admin, 0), metadatainformer.NewSharedInformerFactory(client, 0)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.admin.Discovery()))
	started := make(chan struct{})
	close(started)
	collector, err := garbagecollector.NewGarbageCollector(ctx, c.admin, client, mapper, map[schema.GroupResource]struct{}{{Resource: "events"}: {}},
		informerfactory.NewInformerFactory(kinds, of), started)
	must.OK(t, err)
	done := make(chan struct{}, 2)
	go func() { collector.Run(ctx, 2, time.Minute); done <- struct{}{} }()
	go func() { collector.Sync(ctx, c.admin.Discovery(), time.Minute); done <- struct{}{} }()
	t.Cleanup(func() { cancel(); <-done; <-done })
}
