package checks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func (f *Facts) gpuNode(name string) *v1alpha1.GPUNode { return f.index.gpuNodes[name] }

// isTrue reports whether a condition of a GPUNode is true.
func isTrue(g *v1alpha1.GPUNode, condition string) bool {
	return meta.IsStatusConditionTrue(g.Status.Conditions, condition)
}

// live returns the GPUNodes of nodes on which an agent runs: the status of other GPUNodes is old.
func (f *Facts) live() []*v1alpha1.GPUNode {
	var all []*v1alpha1.GPUNode
	for _, n := range f.watched() {
		if g := f.gpuNode(n.Name); g != nil {
			all = append(all, g)
		}
	}
	return all
}

// known returns the live GPUNodes whose devices the agent knows: without a driver, before it has looked and when it stops it publishes
// none, or old ones.
func (f *Facts) known() []*v1alpha1.GPUNode {
	knows := []string{v1alpha1.ReadyServing, v1alpha1.ReadyNotRegistered, v1alpha1.ReadyPodsUnknown}
	return slices.DeleteFunc(f.live(), func(g *v1alpha1.GPUNode) bool { return !slices.Contains(knows, ready(g).Reason) })
}

// ready returns the condition Ready of a GPUNode. It is unknown before the agent has written it.
func ready(g *v1alpha1.GPUNode) metav1.Condition {
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{Status: metav1.ConditionUnknown, Reason: "NotWritten", Message: "the agent has not written the condition"}
}

func gpuNodeMissing(f *Facts) []hit {
	var hits []hit
	for _, n := range f.watched() {
		unread := slices.ContainsFunc(f.Unread, func(u Unread) bool { return u.Name == n.Name })
		if f.gpuNode(n.Name) == nil && !unread {
			hits = append(hits, hit{"GPUNode/" + n.Name, fmt.Sprintf("an agent runs on the node %s and has written no GPUNode", n.Name), f.agentLog(n.Name)})
		}
	}
	return hits
}

// agentLog is the command that shows the log of a node's agent.
func (f *Facts) agentLog(node string) string {
	return fmt.Sprintf("the agent's log says why: kubectl -n %s logs $(kubectl -n %[1]s get pod -o name -l %s=%s --field-selector spec.nodeName=%s)", f.Namespace, nameLabel, agentName, node)
}

func gpuNodeLeftOver(f *Facts) []hit {
	var hits []hit
	for i := range f.GPUNodes {
		name := f.GPUNodes[i].Name
		n := f.index.nodes[name]
		switch {
		case n == nil:
			hits = append(hits, hit{"GPUNode/" + name, "there is no node " + name, "kubectl delete gpunode " + name})
		case n.Labels[agentLabel] != "true":
			hits = append(hits, hit{
				"GPUNode/" + name, fmt.Sprintf("the node %s does not have the label %s=true, so it has no agent", name, agentLabel),
				fmt.Sprintf("kubectl delete gpunode %s, or hand the node over again: kubectl label node %[1]s %s=true", name, agentLabel),
			})
		}
	}
	return hits
}

// readyReasons are those of the condition Ready that have a check of their own.
var readyReasons = []string{v1alpha1.ReadyNoDriver, v1alpha1.ReadyNotRegistered, v1alpha1.ReadyPodsUnknown}

// notReady returns the check for one reason of the condition Ready.
func notReady(reason string) func(*Facts) []hit {
	return func(f *Facts) []hit {
		var hits []hit
		for _, g := range f.live() {
			if c := ready(g); c.Status != metav1.ConditionTrue && c.Reason == reason {
				hits = append(hits, hit{"GPUNode/" + g.Name, saying("it is not ready, "+reason, c.Message), f.readyFix(g.Name, reason)})
			}
		}
		return hits
	}
}

// readyFix says what helps against a reason.
func (f *Facts) readyFix(node, reason string) string {
	switch reason {
	case v1alpha1.ReadyNoDriver:
		return "nvidia-smi on the node: load the driver where it fails; else give the agent's pod NVIDIA's runtime, and driver.root of the agent's configuration the folder of the driver"
	case v1alpha1.ReadyNotRegistered:
		return "journalctl -u kubelet on the node: it says why it refuses the agent; /var/lib/kubelet/device-plugins has to be its folder"
	}
	if n := f.index.nodes[node]; n != nil && older(n.Status.NodeInfo.KubeletVersion, podsAPI) {
		return fmt.Sprintf("the kubelet is %s and serves no pods before %s: add the component deploy/components/pods-from-apiserver (components.podsFromAPIServer of the chart), and %s", n.Status.NodeInfo.KubeletVersion, podsAPI, apply)
	}
	return "switch the feature gate PodsAPI of the kubelet on, or add the component deploy/components/pods-from-apiserver (components.podsFromAPIServer of the chart)"
}

func notReadyElse(f *Facts) []hit {
	var hits []hit
	for _, g := range f.live() {
		if c := ready(g); c.Status != metav1.ConditionTrue && !slices.Contains(readyReasons, c.Reason) {
			hits = append(hits, hit{"GPUNode/" + g.Name, saying("it is not ready, "+c.Reason, c.Message), f.agentLog(g.Name)})
		}
	}
	return hits
}

func gpuNodeInvalid(f *Facts) []hit {
	const one = "apply deploy/crds and deploy/agent of one release; "
	hits := make([]hit, 0, len(f.Unread))
	for _, u := range f.Unread {
		hits = append(hits, hit{"GPUNode/" + u.Name, "it cannot be read: " + u.Why, one + f.agentLog(u.Name)})
	}
	for _, g := range f.known() {
		if _, err := kube.Devices(g); err != nil {
			hits = append(hits, hit{"GPUNode/" + g.Name, fmt.Sprintf("its devices cannot be read: %v", err), one + f.agentLog(g.Name)})
		}
	}
	return hits
}

// saying adds a message, where there is one.
func saying(what, message string) string {
	if message == "" {
		return what
	}
	return what + ": " + message
}

func podsFromServer(f *Facts) []hit {
	var hits []hit
	for _, n := range f.watched() {
		g := f.gpuNode(n.Name)
		if g == nil || older(n.Status.NodeInfo.KubeletVersion, podsAPI) { // such a kubelet serves none
			continue
		}
		if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionPodsKnown); c != nil && c.Reason == v1alpha1.PodsFromServer {
			hits = append(hits, hit{"GPUNode/" + g.Name, fmt.Sprintf("the agent knows its pods from the API server, since the kubelet %s does not serve them", n.Status.NodeInfo.KubeletVersion), "switch the feature gate PodsAPI of the kubelet on"})
		}
	}
	return hits
}

// devices finds unhealthy devices by their reason.
func (f *Facts) devices(is func(reason string) bool, fix func(node string, d *v1alpha1.GPUDevice) string) []hit {
	var hits []hit
	for _, g := range f.known() {
		for i := range g.Status.Devices {
			if d := &g.Status.Devices[i]; d.Health != v1alpha1.Healthy && is(d.Reason) {
				hits = append(hits, hit{fmt.Sprintf("GPUNode/%s/g%d", g.Name, d.Index), saying(fmt.Sprintf("the device %s is unhealthy, %s", d.ID, d.Reason), d.Message), fix(g.Name, d)})
			}
		}
	}
	return hits
}

// recovering is the reason of devices that are well and watched for a while.
const recovering = v1alpha1.DevicesRecovering

func ofMPS(reason string) bool { return strings.HasPrefix(reason, "MPS") }

func deviceSick(f *Facts) []hit {
	return f.devices(func(r string) bool { return !ofMPS(r) && r != recovering }, func(node string, d *v1alpha1.GPUDevice) string {
		return fmt.Sprintf("drain the GPU pods of %s, then nvidia-smi --gpu-reset -i %d on it, or a reboot", node, d.Index)
	})
}

func mpsSick(f *Facts) []hit {
	return f.devices(ofMPS, func(node string, _ *v1alpha1.GPUDevice) string {
		return fmt.Sprintf("where it stays so for five minutes, drain the GPU pods of %s, then kubectl -n %s delete pod -l %s=%s --field-selector spec.nodeName=%[1]s", node, f.Namespace, nameLabel, mpsName)
	})
}

func deviceRecovers(f *Facts) []hit {
	return f.devices(func(r string) bool { return r == recovering }, func(string, *v1alpha1.GPUDevice) string {
		return "wait a minute; a device that is sick and recovers in turn is broken by a tenant: find out whose containers restart before"
	})
}

func deviceCordoned(f *Facts) []hit {
	var hits []hit
	for _, g := range f.known() {
		for i := range g.Status.Devices {
			d := &g.Status.Devices[i]
			cordon := kube.CordonOf(g, d.ID)
			if cordon == nil {
				continue
			}
			name := fmt.Sprintf("g%d", d.Index)
			hits = append(hits, hit{
				"GPUNode/" + g.Name, saying(name+" is cordoned", cordon.Reason),
				fmt.Sprintf("where the reason is over: kubectl tandem uncordon %s %s", g.Name, name),
			})
		}
	}
	return hits
}

func notMonitored(f *Facts) []hit {
	hits := make([]hit, 0, len(f.GPUNodes))
	for _, g := range f.known() {
		c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionMonitored)
		if c == nil || c.Status == metav1.ConditionTrue || c.Reason == v1alpha1.MonitoredNotYet {
			continue
		}
		fix := f.agentLog(g.Name)
		if c.Reason == v1alpha1.MonitoredNoCUDA {
			fix = "let the agent's pod have the driver's libraries: NVIDIA_DRIVER_CAPABILITIES=compute,utility, and NVIDIA's runtime by its runtimeClassName"
		}
		hits = append(hits, hit{"GPUNode/" + g.Name, saying("its devices are not monitored, "+c.Reason, c.Message), fix})
	}
	return hits
}

func notEnforced(f *Facts) []hit {
	var hits []hit
	for _, g := range f.known() {
		for i := range g.Status.Devices {
			if d := &g.Status.Devices[i]; d.Enforcement == v1alpha1.EnforcementNone {
				hits = append(hits, hit{
					fmt.Sprintf("GPUNode/%s/g%d", g.Name, d.Index), fmt.Sprintf("nothing keeps shares of the device, a %s, in their bounds", d.Model),
					"give it to tenants that trust each other, or set slots.models of the agent's configuration to 1 for the model",
				})
			}
		}
	}
	return hits
}

func driversDiffer(f *Facts) []hit {
	nodes := map[string][]string{}
	for _, g := range f.known() {
		if v := g.Status.DriverVersion; v != "" {
			nodes[v] = append(nodes[v], g.Name)
		}
	}
	if len(nodes) < 2 {
		return nil
	}
	// The driver that most nodes have is taken for the right one; of equally many the one that sorts first.
	versions := slices.SortedFunc(maps.Keys(nodes), func(a, b string) int { return cmp.Or(len(nodes[b])-len(nodes[a]), cmp.Compare(a, b)) })
	var hits []hit
	for _, v := range versions[1:] {
		for _, name := range nodes[v] {
			hits = append(hits, hit{"GPUNode/" + name, fmt.Sprintf("its driver is %s, and that of most nodes is %s", v, versions[0]), "load the same driver on all nodes, one drained node after the other"})
		}
	}
	return hits
}
