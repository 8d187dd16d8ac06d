package checks

import (
	"fmt"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// agentLabel is the label of nodes whose GPUs are Tandem's.
const agentLabel = v1alpha1.Domain + "/agent"

// containerdWithCDI is the first containerd that reads CDI specs without being told to.
var containerdWithCDI = version.MustParseGeneric("2.0")

// handed returns the nodes whose GPUs are Tandem's.
func (f *Facts) handed() []*v1.Node {
	var all []*v1.Node
	for i := range f.Nodes {
		if f.Nodes[i].Labels[agentLabel] == "true" {
			all = append(all, &f.Nodes[i])
		}
	}
	return all
}

func nodeReady(n *v1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c v1.NodeCondition) bool { return c.Type == v1.NodeReady && c.Status == v1.ConditionTrue })
}

// runs reports whether all containers of a pod run. Readiness is no sign of it: the agent's pod is not ready where the node has no
// driver or the kubelet refuses the agent, and its GPUNode says which of these it is.
func runs(p *v1.Pod) bool {
	return p.DeletionTimestamp == nil && len(p.Status.ContainerStatuses) > 0 &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.State.Running == nil })
}

// up returns the nodes of Tandem that are ready.
func (f *Facts) up() []*v1.Node {
	return slices.DeleteFunc(f.handed(), func(n *v1.Node) bool { return !nodeReady(n) })
}

// running reports whether a pod of one of Tandem's DaemonSets runs on a node. It is taken for granted where pods may not be read.
func (f *Facts) running(node, name string) bool {
	return f.refused(Pods) || f.index.running[place{node, name}]
}

// watched returns the nodes on which an agent runs.
func (f *Facts) watched() []*v1.Node {
	return slices.DeleteFunc(f.up(), func(n *v1.Node) bool { return !f.running(n.Name, agentName) })
}

func nodeNotReady(f *Facts) []hit {
	var hits []hit
	for _, n := range f.handed() {
		if !nodeReady(n) {
			hits = append(hits, hit{"Node/" + n.Name, fmt.Sprintf("the node %s is not ready", n.Name), fmt.Sprintf("kubectl describe node %s says why; journalctl -u kubelet on the node", n.Name)})
		}
	}
	return hits
}

func kubeletTooOld(f *Facts) []hit {
	var hits []hit
	for _, n := range f.handed() {
		if v := n.Status.NodeInfo.KubeletVersion; older(v, least) {
			hits = append(hits, hit{"Node/" + n.Name, fmt.Sprintf("the kubelet is %s, and Tandem needs %s or later", v, least), "upgrade the kubelet"})
		}
	}
	return hits
}

func runtimeWithoutCDI(f *Facts) []hit {
	var hits []hit
	for _, n := range f.handed() {
		raw := n.Status.NodeInfo.ContainerRuntimeVersion
		program, v, _ := strings.Cut(raw, "://")
		if program == "docker" || program == "containerd" && older(v, containerdWithCDI) {
			hits = append(hits, hit{"Node/" + n.Name, fmt.Sprintf("the container runtime is %s, and Tandem needs containerd %s or later, or CRI-O", raw, containerdWithCDI), "upgrade the container runtime of the node"})
		}
	}
	return hits
}

// foreignGPUs are the beginnings of the names under which other device plugins offer GPUs: NVIDIA's (MIG instances and HAMi's parts of GPUs
// too), Volcano's and Aliyun's. NVIDIA's network cards have the domain nvidia.com as well.
var foreignGPUs = []string{"nvidia.com/gpu", "nvidia.com/mig-", "volcano.sh/vgpu-", "aliyun.com/gpu-"}

// isForeign reports whether a resource of a node is a GPU of another device plugin.
func isForeign(r v1.ResourceName) bool {
	return slices.ContainsFunc(foreignGPUs, func(begin string) bool { return strings.HasPrefix(string(r), begin) })
}

// foreign returns what a node offers of GPUs beside Tandem's slots.
func foreign(n *v1.Node) []string {
	var all []string
	for r, q := range n.Status.Capacity {
		if isForeign(r) && !q.IsZero() {
			all = append(all, fmt.Sprintf("%s: %s", r, q.String()))
		}
	}
	slices.Sort(all)
	return all
}

func otherPlugin(f *Facts) []hit {
	var hits []hit
	for _, n := range f.handed() {
		if offers := foreign(n); len(offers) > 0 {
			hits = append(hits, hit{
				"Node/" + n.Name, fmt.Sprintf("the node %s offers %s beside Tandem's slots", n.Name, strings.Join(offers, ", ")),
				fmt.Sprintf("keep the other device plugin off the node, by its nodeSelector or affinity; or keep Tandem off: kubectl label node %s %s-", n.Name, agentLabel),
			})
		}
	}
	return hits
}

// rivals are names of images that own GPUs: the device plugins of NVIDIA, HAMi, Volcano and Aliyun, and NVIDIA's MPS daemon.
var rivals = []string{"k8s-device-plugin", hami, "volcano-vgpu-device-plugin", "k8s-gpushare-plugin", "mps-control-daemon"}

const (
	// hami is the image of HAMi's device plugin, which is in a DaemonSet, and of its scheduler, which owns no GPU.
	hami = "hami"
	// discovery begins the name of a container that runs from the image of NVIDIA's device plugin and only labels nodes.
	discovery = "gpu-feature-discovery"
)

// rival returns the image of a container of the pod that owns GPUs, "" for none.
func rival(p *v1.Pod) string {
	if slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return strings.HasPrefix(c.Name, discovery) }) {
		return ""
	}
	owner := metav1.GetControllerOf(p)
	for i := range p.Spec.Containers {
		repository, _, _ := strings.Cut(p.Spec.Containers[i].Image, "@")
		name, _, _ := strings.Cut(path.Base(repository), ":")
		if slices.Contains(rivals, name) && (name != hami || owner != nil && owner.Kind == "DaemonSet") {
			return p.Spec.Containers[i].Image
		}
	}
	return ""
}

func otherProgram(f *Facts) []hit {
	var hits []hit
	for _, n := range f.handed() {
		if len(foreign(n)) > 0 { // OtherPlugin says it
			continue
		}
		for _, p := range f.index.pods[n.Name] {
			if image := rival(p); !ended(p) && image != "" {
				hits = append(hits, hit{
					"Pod/" + p.Namespace + "/" + p.Name, fmt.Sprintf("the pod runs %s on the node %s, whose GPUs are Tandem's", image, n.Name),
					"keep the DaemonSet of the pod off the node, by its nodeSelector or affinity",
				})
			}
		}
	}
	return hits
}

// injectors are names of images that give pods devices by annotation: Google's, and the sample of NRI.
var injectors = []string{"nri-device-injector", "device-injector"}

const (
	// toolkitNRI has NVIDIA's Container Toolkit inject CDI devices by annotation: an environment variable, or the flag of the same name.
	toolkitNRI, toolkitNRIFlag = "ENABLE_NRI_PLUGIN", "--enable-nri-plugin"
)

// injects reports whether a container gives pods devices by annotation.
func injects(c *v1.Container) bool {
	repository, _, _ := strings.Cut(c.Image, "@")
	name, _, _ := strings.Cut(path.Base(repository), ":")
	return slices.Contains(injectors, name) ||
		slices.ContainsFunc(c.Env, func(e v1.EnvVar) bool { return e.Name == toolkitNRI && e.Value == "true" }) ||
		slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool { return arg == toolkitNRIFlag || arg == toolkitNRIFlag+"=true" })
}

// injector returns the container of a pod that gives pods devices by annotation, nil for none.
func injector(p *v1.Pod) *v1.Container {
	if i := slices.IndexFunc(p.Spec.Containers, func(c v1.Container) bool { return injects(&c) }); i >= 0 {
		return &p.Spec.Containers[i]
	}
	return nil
}

func deviceInjector(f *Facts) []hit {
	var hits []hit
	for _, n := range f.handed() {
		for _, p := range f.index.pods[n.Name] {
			if c := injector(p); !ended(p) && c != nil {
				hits = append(hits, hit{
					"Pod/" + p.Namespace + "/" + p.Name, fmt.Sprintf("container %s of the pod (%s) gives pods on the node %s devices by their annotations", c.Name, c.Image, n.Name),
					"switch it off (cdi.nriPluginEnabled of the GPU operator), or keep it off the node; else refuse its annotations in pods without vGPUs too, by a policy of your own",
				})
			}
		}
	}
	return hits
}

// down finds the ready nodes on which no pod of a DaemonSet of Tandem runs.
func (f *Facts) down(name, what string) []hit {
	hits := make([]hit, 0, 1)
	for _, n := range f.up() {
		if f.running(n.Name, name) {
			continue
		}
		hits = append(hits, hit{
			"Node/" + n.Name, fmt.Sprintf("no pod of %s runs on the node %s, or one of its containers does not", name, n.Name),
			fmt.Sprintf("kubectl -n %s get pods -l %s=%s --field-selector spec.nodeName=%s, then kubectl logs --previous and kubectl describe of %s", f.Namespace, nameLabel, name, n.Name, what),
		})
	}
	return hits
}

func agentDown(f *Facts) []hit {
	if !f.refused(DaemonSets) && f.daemonSet(agentName) == nil { // WorkloadMissing says it
		return nil
	}
	return f.down(agentName, "the agent's pod")
}

func mpsDown(f *Facts) []hit {
	if !f.refused(DaemonSets) && f.daemonSet(mpsName) == nil {
		return nil
	}
	return f.down(mpsName, "the pod of MPS")
}

func slotsDiffer(f *Facts) []hit {
	var hits []hit
	for _, n := range f.watched() {
		g := f.gpuNode(n.Name)
		if g == nil || !isTrue(g, v1alpha1.ConditionReady) { // other checks say it
			continue
		}
		has := n.Status.Allocatable[v1alpha1.ResourceVGPU]
		devices, err := kube.Devices(g)
		if err == nil && (!kube.OffersAll(has.Value(), devices) || has.Value() > int64(g.Status.SlotCount)) {
			hits = append(hits, hit{
				"Node/" + n.Name, fmt.Sprintf("the kubelet offers %d slots of %s, the healthy devices of the GPUNode have %d", has.Value(), v1alpha1.ResourceVGPU, g.Status.SlotCount),
				fmt.Sprintf("where it stays so for a minute: kubectl -n %s delete pod -l %s=%s --field-selector spec.nodeName=%s", f.Namespace, nameLabel, agentName, n.Name),
			})
		}
	}
	return hits
}
