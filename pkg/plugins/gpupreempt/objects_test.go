package gpupreempt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// profile is the stock profile with the plugins, set as deploy/ sets them.
func (c *cluster) profile() schedulerconfig.KubeSchedulerProfile {
	p := fakecluster.Profile(c.T)
	multi := slices.DeleteFunc(p.Plugins.MultiPoint.Enabled, func(e schedulerconfig.Plugin) bool { return e.Name == names.DefaultPreemption })
	p.Plugins.MultiPoint.Enabled = slices.Concat(multi, []schedulerconfig.Plugin{
		{Name: gpugang.Name}, {Name: gpushare.Name, Weight: 10000}, {Name: Name},
	})
	p.Plugins.PostFilter.Enabled = append([]schedulerconfig.Plugin{{Name: gpushare.Name}, {Name: Name}, {Name: gpugang.Name}}, p.Plugins.PostFilter.Enabled...)
	p.Plugins.PodGroupPostFilter.Enabled = []schedulerconfig.Plugin{{Name: Name}, {Name: gpugang.Name}}
	p.Plugins.Bind.Enabled = append([]schedulerconfig.Plugin{{Name: gpugang.Name}, {Name: gpushare.Name}}, p.Plugins.Bind.Enabled...)
	p.PluginConfig = append(p.PluginConfig, schedulerconfig.PluginConfig{Name: gpushare.Name, Args: fakecluster.ShareArgs(time.Second)},
		schedulerconfig.PluginConfig{Name: gpugang.Name, Args: &c.gangArgs}, schedulerconfig.PluginConfig{Name: Name, Args: &c.args})
	return p
}

// makeKnownSick has the devices of a node report a fault, and waits until GPUShare goes by it.
func (c *cluster) makeKnownSick(node string) {
	c.T.Helper()
	c.MakeSick(node)
	tries := 0
	c.Await("GPUShare knows that node "+node+" is sick", func() bool {
		tries++
		c.Create(pod(fmt.Sprint("illegal-", tries), 990, -1)) // its cycle brings what is known up to date
		nodes := c.shares.Published()
		at := slices.IndexFunc(nodes, func(n gpushare.Node) bool { return n.Name == node })
		return at >= 0 && nodes[at].Ledger != nil && !nodes[at].Ledger.Devices()[0].Healthy
	})
}

// changeNode updates a node.
func (c *cluster) changeNode(name string, change func(*v1.Node)) {
	c.T.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(c.T.Context(), name, metav1.GetOptions{})
	must.OK(c.T, err)
	change(n)
	if _, err := c.Client.CoreV1().Nodes().Update(c.T.Context(), n, metav1.UpdateOptions{}); err != nil {
		c.T.Fatal(err)
	}
}

// createBound creates pods one after the other, each once the one before is bound: so they fill the devices in that order.
func (c *cluster) createBound(pods ...*v1.Pod) {
	c.T.Helper()
	for _, p := range pods {
		c.Create(p)
		c.AwaitBound(p.Name, 1)
	}
}

// devices returns the devices of a bound pod, in short: "n1/0+n1/1".
func (c *cluster) devices(name string) string {
	c.T.Helper()
	return strings.NewReplacer("GPU-", "", "-", "/").Replace(devicesOf(c.T, c.Pod(name)))
}

// awaitEvent returns the first event with a reason about a pod.
func (c *cluster) awaitEvent(pod, reason string) *eventsv1.Event {
	c.T.Helper()
	var found *eventsv1.Event
	c.Await("pod "+pod+" has an event "+reason, func() bool {
		list, err := c.Client.EventsV1().Events("default").List(c.T.Context(), metav1.ListOptions{})
		must.OK(c.T, err)
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
		pods = append(pods, pod(fmt.Sprintf("%s-%d", name, i), slots, 0))
	}
	return fakecluster.Join(name, least, pods...)
}

// pod returns a pod in namespace default with a priority and one container that asks for slots; 0 for none.
func pod(name string, slots int, priority int32) *v1.Pod {
	p := fakecluster.Pod(name, slots)
	p.Labels = map[string]string{"app": name}
	p.Spec.Priority = &priority
	return p
}
