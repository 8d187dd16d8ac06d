package gpupreempt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/test/bubble"
)

// profile is the stock profile with the plugins, set as deploy/ sets them.
func (c *cluster) profile() schedulerconfig.KubeSchedulerProfile {
	defaults, err := latest.Default()
	if err != nil {
		c.t.Fatal(err)
	}
	p := defaults.Profiles[0]
	multi := slices.DeleteFunc(p.Plugins.MultiPoint.Enabled, func(e schedulerconfig.Plugin) bool { return e.Name == names.DefaultPreemption })
	p.Plugins.MultiPoint.Enabled = slices.Concat(multi, []schedulerconfig.Plugin{
		{Name: gpugang.Name}, {Name: gpushare.Name, Weight: 10000}, {Name: Name},
	})
	p.Plugins.PostFilter.Enabled = append([]schedulerconfig.Plugin{{Name: gpushare.Name}, {Name: Name}, {Name: gpugang.Name}}, p.Plugins.PostFilter.Enabled...)
	p.Plugins.PodGroupPostFilter.Enabled = []schedulerconfig.Plugin{{Name: Name}, {Name: gpugang.Name}}
	p.Plugins.Bind.Enabled = append([]schedulerconfig.Plugin{{Name: gpugang.Name}, {Name: gpushare.Name}}, p.Plugins.Bind.Enabled...)
	shareArgs := &config.GPUShareArgs{
		Policy: "packed", BindTimeout: metav1.Duration{Duration: time.Second},
		PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: 24 * time.Hour},
		Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningEnabled, MaxProfiles: 10000},
		Weights:      config.CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      config.SharingWhenScarce, ScarceBelowPercent: 10,
	}
	p.PluginConfig = append(p.PluginConfig, schedulerconfig.PluginConfig{Name: gpushare.Name, Args: shareArgs},
		schedulerconfig.PluginConfig{Name: gpugang.Name, Args: &c.gangArgs}, schedulerconfig.PluginConfig{Name: Name, Args: &c.args})
	for _, pc := range p.PluginConfig {
		if fit, ok := pc.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			fit.IgnoredResources = []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		}
	}
	return p
}

func (c *cluster) createNode(name, inRack string, devices int) {
	c.t.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, rack: inRack}}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	if _, err := c.client.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Unix(0, 0),
	}}
	for i := range devices {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: fmt.Sprintf("GPU-%s-%d", name, i), Index: int32(i), Model: "A100", Memory: resource.MustParse("40Gi"), Slots: 10,
			ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		})
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		c.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	if _, err := c.dynamic.Resource(v1alpha1.GPUNodes).Create(c.t.Context(), u, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// removeNode takes a node and its GPUs away. The pods that were on it exist on, as they do for minutes.
func (c *cluster) removeNode(name string) {
	c.t.Helper()
	if err := c.client.CoreV1().Nodes().Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	if err := c.dynamic.Resource(v1alpha1.GPUNodes).Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// makeSick has the devices of a node report a fault, and waits until GPUShare goes by it.
func (c *cluster) makeSick(node string) {
	c.t.Helper()
	client := c.dynamic.Resource(v1alpha1.GPUNodes)
	u, err := client.Get(c.t.Context(), node, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	devices, _, err := unstructured.NestedSlice(u.Object, "status", "devices")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range devices {
		d.(map[string]any)["health"] = string(v1alpha1.Unhealthy)
	}
	if err := unstructured.SetNestedSlice(u.Object, devices, "status", "devices"); err != nil {
		c.t.Fatal(err)
	}
	if _, err := client.Update(c.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	tries := 0
	c.await("GPUShare knows that node "+node+" is sick", func() bool {
		tries++
		c.create(pod(fmt.Sprint("illegal-", tries), 990, -1)) // its cycle brings what is known up to date
		nodes := c.plugin.shares().(*gpushare.Plugin).Published()
		at := slices.IndexFunc(nodes, func(n gpushare.Node) bool { return n.Name == node })
		return at >= 0 && nodes[at].Ledger != nil && !nodes[at].Ledger.Devices()[0].Healthy
	})
}

// changeNode updates a node.
func (c *cluster) changeNode(name string, change func(*v1.Node)) {
	c.t.Helper()
	n, err := c.client.CoreV1().Nodes().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	change(n)
	if _, err := c.client.CoreV1().Nodes().Update(c.t.Context(), n, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) pods() []v1.Pod {
	c.t.Helper()
	list, err := c.client.CoreV1().Pods(metav1.NamespaceAll).List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	slices.SortFunc(list.Items, func(a, b v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return list.Items
}

// pod returns a pod of namespace default.
func (c *cluster) pod(name string) *v1.Pod {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return p
}

func (c *cluster) create(pods ...*v1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		p.CreationTimestamp = metav1.NewTime(c.clock.now().Truncate(time.Second))
		if _, err := c.client.CoreV1().Pods(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// createBound creates pods one after the other, each once the one before is bound: so they fill the devices in that order.
func (c *cluster) createBound(pods ...*v1.Pod) {
	c.t.Helper()
	for _, p := range pods {
		c.create(p)
		c.awaitBound(p.Name, 1)
	}
}

// await waits until what is wanted is true and all that runs has come to rest.
func (c *cluster) await(what string, wanted func() bool) {
	c.t.Helper()
	if c.awaited(wanted) {
		return
	}
	var all strings.Builder
	for _, p := range c.pods() {
		fmt.Fprintf(&all, "%s on %q: %s\n", p.Name, p.Spec.NodeName, message(&p))
	}
	c.t.Fatalf("waiting until %s for %v; evicted are %v\n%s", what, bubble.Patience, c.victims(), all.String())
}

// awaited is bubble.Await for tests, and waits by the real clock in benchmarks.
func (c *cluster) awaited(wanted func() bool) bool {
	if _, measured := c.t.(*testing.B); !measured {
		return bubble.Await(wanted)
	}
	for !wanted() {
		time.Sleep(20 * time.Millisecond)
	}
	return true
}

// bound returns the nodes of the bound pods whose names begin with a prefix, by pod.
func (c *cluster) bound(prefix string) map[string]string {
	c.t.Helper()
	nodes := map[string]string{}
	for _, p := range c.pods() {
		if strings.HasPrefix(p.Name, prefix) && p.Spec.NodeName != "" {
			nodes[p.Name] = p.Spec.NodeName
		}
	}
	return nodes
}

func (c *cluster) awaitBound(prefix string, count int) map[string]string {
	c.t.Helper()
	c.await(fmt.Sprintf("%d pods %s are bound", count, prefix), func() bool { return len(c.bound(prefix)) == count })
	return c.bound(prefix)
}

// devices returns the devices of a bound pod, in short: "n1/0+n1/1".
func (c *cluster) devices(name string) string {
	c.t.Helper()
	return strings.NewReplacer("GPU-", "", "-", "/").Replace(devicesOf(c.t, c.pod(name)))
}

// awaitMessage returns the message of the first pod whose name begins with a prefix and whose message has a text.
func (c *cluster) awaitMessage(prefix, text string) string {
	c.t.Helper()
	found := ""
	c.await("a pod "+prefix+" is refused because of "+text, func() bool {
		for _, p := range c.pods() {
			if strings.HasPrefix(p.Name, prefix) && strings.Contains(message(&p), text) {
				found = message(&p)
			}
		}
		return found != ""
	})
	return found
}

func message(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// awaitEvent returns the first event with a reason about a pod.
func (c *cluster) awaitEvent(pod, reason string) *eventsv1.Event {
	c.t.Helper()
	var found *eventsv1.Event
	c.await("pod "+pod+" has an event "+reason, func() bool {
		list, err := c.client.EventsV1().Events("default").List(c.t.Context(), metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Regarding.Name == pod && e.Reason == reason {
				found = e
			}
		}
		return found != nil
	})
	return found
}

// members returns pods NAME-0, NAME-1, … of a gang, each with so many slots.
func members(name string, count, least, slots int) []*v1.Pod {
	pods := make([]*v1.Pod, 0, count)
	for i := range count {
		p := pod(fmt.Sprintf("%s-%d", name, i), slots, 0)
		p.Labels = map[string]string{v1alpha1.LabelGang: name}
		p.Annotations = map[string]string{v1alpha1.AnnotationMinMembers: fmt.Sprint(least)}
		pods = append(pods, p)
	}
	return pods
}

// pod returns a pod in namespace default with a priority and one container that asks for slots; 0 for none.
func pod(name string, slots int, priority int32) *v1.Pod {
	limits := v1.ResourceList{}
	if slots != 0 {
		limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(int64(slots), resource.DecimalSI)
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName, Priority: &priority,
			Containers: []v1.Container{{
				Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits.DeepCopy()},
			}},
		},
	}
	return p
}
