package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

const karpenterModule = "sigs.k8s.io/karpenter"

// Names of Karpenter's, and the pools of the tests by the instance types that they may use.
const (
	poolLabel    = "karpenter.sh/nodepool"
	doNotDisrupt = "karpenter.sh/do-not-disrupt"
	sharedPool   = "shared" // instance types with 1, 2 and 8 GPUs, which have Tandem's resources
	bareType     = "bare-8x"
)

var nodeClaims = schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}

// startKarpenter starts Karpenter with its cloud of nodes that exist only in the API.
func (c *gangCluster) startKarpenter(t *testing.T) {
	t.Helper()
	for _, file := range []string{
		"pkg/apis/crds/karpenter.sh_nodeclaims.yaml", "pkg/apis/crds/karpenter.sh_nodepools.yaml", "pkg/apis/crds/karpenter.sh_nodeoverlays.yaml",
		"kwok/apis/crds/karpenter.kwok.sh_kwoknodeclasses.yaml",
	} {
		c.applySource(t, karpenterModule, file)
	}
	catalogue := filepath.Join(t.TempDir(), "instances.json")
	raw, err := json.Marshal([]any{instanceType("gpu-1x", 1, true), instanceType("gpu-2x", 2, true), instanceType("gpu-8x", 8, true), instanceType(bareType, 8, false)})
	must.OK(t, err)
	must.OK(t, os.WriteFile(catalogue, raw, 0o600))
	ports, err := sandbox.FreePorts(2)
	must.OK(t, err)
	c.operator(t, karpenterModule, "./kwok", "--karpenter-service=karpenter", "--disable-leader-election=true", "--feature-gates=NodeOverlay=true",
		"--batch-idle-duration=500ms", "--instance-types-file-path="+catalogue,
		fmt.Sprintf("--metrics-port=%d", ports[0]), fmt.Sprintf("--health-probe-port=%d", ports[1]))
}

// instanceType returns one of the cloud, with GPUs of 10 slots and 40Gi. One that is not complete has none of Tandem's resources, like
// those of providers that know nothing of Tandem.
func instanceType(name string, gpus int, complete bool) map[string]any {
	resources := map[string]string{"cpu": "64", "memory": "512Gi", "ephemeral-storage": "100Gi", "pods": "110"}
	if complete {
		resources[v1alpha1.ResourceVGPU] = strconv.Itoa(10 * gpus)
		resources[v1alpha1.ResourceMemory] = fmt.Sprintf("%dGi", 40*gpus)
	}
	in := func(key, value string) any {
		return map[string]any{"key": key, "operator": "In", "values": []string{value}}
	}
	offering := map[string]any{"Price": float64(gpus), "Available": true, "Requirements": []any{
		in("karpenter.sh/capacity-type", "on-demand"), in(v1.LabelTopologyZone, "z"),
	}}
	return map[string]any{
		"name": name, "architecture": "amd64", "operatingSystems": []string{"linux"}, "resources": resources, "offerings": []any{offering},
	}
}

// pool makes or changes a NodePool of instance types. disruption is that of its specification.
func (c *gangCluster) pool(t *testing.T, name, disruption string, instances ...string) {
	t.Helper()
	c.plane.ApplyForTest(t.Context(), t, fmt.Sprintf(`
apiVersion: karpenter.kwok.sh/v1alpha1
kind: KWOKNodeClass
metadata: {name: default}
---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [%s]}
  disruption: %s
`, name, strings.Join(instances, ", "), disruption))
}

// startAgents runs what kubelets and agents do on the nodes that Karpenter makes: they report their resources, and their GPUs.
func (c *gangCluster) startAgents(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.asAgents(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// asAgents does once what is to do. Errors are those of changes at the same time: the next time comes soon.
func (c *gangCluster) asAgents(ctx context.Context) {
	nodes, err := c.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: poolLabel})
	if err != nil {
		return
	}
	there := map[string]bool{}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		there[n.Name] = true
		if gpus := gpusOf(n); n.DeletionTimestamp == nil && !isReady(n) {
			c.asAgent(ctx, n, gpus)
		}
	}
	known, err := c.objects.Resource(v1alpha1.GPUNodes).List(ctx, metav1.ListOptions{})
	for i := 0; err == nil && i < len(known.Items); i++ {
		if name := known.Items[i].GetName(); !there[name] { // Kubernetes' garbage collector, in a cluster
			_ = c.objects.Resource(v1alpha1.GPUNodes).Delete(ctx, name, metav1.DeleteOptions{})
		}
	}
}

func gpusOf(n *v1.Node) int {
	_, count, _ := strings.Cut(n.Labels[v1.LabelInstanceTypeStable], "-")
	gpus, _ := strconv.Atoi(strings.TrimSuffix(count, "x")) // a name of this file
	return gpus
}

func isReady(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
}

// asAgent makes a node ready. The node has no vgpu-memory: no kubelet knows that resource.
func (c *gangCluster) asAgent(ctx context.Context, n *v1.Node, gpus int) {
	ready := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(taint v1.Taint) bool { return taint.Key == v1.TaintNodeNotReady })
	if len(ready) < len(n.Spec.Taints) { // admission taints new nodes, and no controller runs here that would take it back
		n.Spec.Taints = ready
		if _, err := c.admin.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
			return
		}
	}
	g, err := fakecluster.Unstructured(fakecluster.GPUNode(n.Name, gpus))
	if err != nil {
		return
	}
	client := c.objects.Resource(v1alpha1.GPUNodes)
	if made, err := client.Create(ctx, g.DeepCopy(), metav1.CreateOptions{}); err == nil {
		g.SetResourceVersion(made.GetResourceVersion())
		if _, err := client.UpdateStatus(ctx, g, metav1.UpdateOptions{}); err != nil {
			return
		}
	}
	resources := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("63"), v1.ResourceMemory: resource.MustParse("500Gi"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: *resource.NewQuantity(int64(10*gpus), resource.DecimalSI),
	}
	status := map[string]any{
		"$patch": "replace", "capacity": resources, "allocatable": resources, "conditions": []any{map[string]any{"type": v1.NodeReady, "status": v1.ConditionTrue, "reason": "KubeletReady"}},
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return
	}
	_, _ = c.admin.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// cloudNodes returns the instance types of the nodes that Karpenter has made and not removed, by name of the node.
func (c *gangCluster) cloudNodes(t *testing.T) map[string]string {
	t.Helper()
	nodes, err := c.admin.CoreV1().Nodes().List(life(t), metav1.ListOptions{LabelSelector: poolLabel})
	must.OK(t, err)
	all := map[string]string{}
	for i := range nodes.Items {
		all[nodes.Items[i].Name] = nodes.Items[i].Labels[v1.LabelInstanceTypeStable]
	}
	return all
}

// wantInstances fails where Karpenter has made other nodes than those of these instance types.
func (c *gangCluster) wantInstances(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, instance := range c.cloudNodes(t) {
		got = append(got, instance)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("Karpenter made %v, and %v suffice", got, want)
	}
}

// scales plays a test, and then removes all that Karpenter has made.
func (c *gangCluster) scales(t *testing.T, name string, test func(*testing.T, *gangCluster)) {
	t.Helper()
	c.play(t, name, func(t *testing.T, c *gangCluster) {
		t.Cleanup(func() { c.removeClaims(t) })
		test(t, c)
	})
}

func (c *gangCluster) removeClaims(t *testing.T) {
	t.Helper()
	c.await(t, "Karpenter's nodes are gone", func() (bool, string) {
		refused := c.deleteAllPods(t)
		must.OK(t, c.objects.Resource(nodeClaims).DeleteCollection(life(t), metav1.DeleteOptions{}, metav1.ListOptions{}))
		claims, err := c.objects.Resource(nodeClaims).List(life(t), metav1.ListOptions{})
		must.OK(t, err)
		nodes := c.cloudNodes(t)
		return len(claims.Items)+len(nodes) == 0, fmt.Sprintf("%d claims, nodes %v; the last request for pods: %v", len(claims.Items), nodes, refused)
	})
}

// awaitClaim waits until the condition Initialized of each of Karpenter's nodes has a status and a reason. Karpenter removes no node
// for want of use while the condition is not true.
func (c *gangCluster) awaitClaim(t *testing.T, status v1.ConditionStatus, reason string) {
	t.Helper()
	c.poll(t, fmt.Sprintf("Initialized of the claims is %s by %s", status, reason), func() (bool, string) {
		claims, err := c.objects.Resource(nodeClaims).List(t.Context(), metav1.ListOptions{})
		must.OK(t, err)
		said, all := "", len(claims.Items) > 0
		for i := range claims.Items {
			conditions, _, _ := unstructured.NestedSlice(claims.Items[i].Object, "status", "conditions")
			found := slices.ContainsFunc(conditions, func(raw any) bool {
				condition := raw.(map[string]any)
				if condition["type"] == "Initialized" {
					said = fmt.Sprint(condition)
				}
				return condition["type"] == "Initialized" && condition["status"] == string(status) && condition["reason"] == reason
			})
			all = all && found
		}
		return all, said
	})
}

// writeNodeMemory starts the controller with the right and the flag of the component node-memory, and that feature alone.
func (c *gangCluster) writeNodeMemory(t *testing.T) {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "components", "node-memory", "rbac.yaml"))
	must.OK(t, err)
	c.plane.ApplyForTest(t.Context(), t, string(raw))
	c.startController(t, "--features=node-memory")
}

// awaitKept waits until Karpenter says that a pod keeps it from removing the pod's node.
func (c *gangCluster) awaitKept(t *testing.T, p *v1.Pod) {
	t.Helper()
	c.poll(t, "Karpenter keeps node "+p.Spec.NodeName+" for its pod", func() (bool, string) {
		events, err := c.admin.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{
			FieldSelector: "reason=DisruptionBlocked,involvedObject.kind=Node,involvedObject.name=" + p.Spec.NodeName,
		})
		must.OK(t, err)
		var said []string
		for i := range events.Items {
			said = append(said, events.Items[i].Message)
		}
		return contains(strings.Join(said, "\n"), doNotDisrupt, p.Namespace+"/"+p.Name), fmt.Sprint(said)
	})
}
