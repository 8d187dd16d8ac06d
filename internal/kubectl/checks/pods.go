package checks

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ended reports whether the containers of a pod have ended for good.
func ended(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// tenants returns the pods with vGPUs that have not ended, bound or not.
func (f *Facts) tenants(bound bool) []*v1.Pod {
	var all []*v1.Pod
	for i := range f.Pods {
		if p := &f.Pods[i]; isTenant(p) && (p.Spec.NodeName != "") == bound {
			all = append(all, p)
		}
	}
	return all
}

func isTenant(p *v1.Pod) bool { return !ended(p) && kube.WantsVGPU(p) }

// schedulers returns the names of schedulers that may have pods with vGPUs: Tandem's, and those that an overlay adds to the
// variable of the policy tandem-pods, a list of strings in CEL.
func (f *Facts) schedulers() []string {
	names := []string{v1alpha1.SchedulerName}
	p := f.policy("tandem-pods")
	if p == nil {
		return names
	}
	for _, v := range p.Spec.Variables {
		if v.Name != "schedulers" {
			continue
		}
		for i, part := range strings.FieldsFunc(v.Expression, func(r rune) bool { return r == '\'' || r == '"' }) {
			if i%2 == 1 { // what is between quotes
				names = append(names, part)
			}
		}
	}
	return names
}

func otherScheduler(f *Facts) []hit {
	known := f.schedulers()
	var hits []hit
	for _, p := range f.tenants(false) {
		if !slices.Contains(known, p.Spec.SchedulerName) {
			hits = append(hits, hit{
				"Pod/" + kube.PathOf(p), fmt.Sprintf("the pod asks for vGPUs and waits for the scheduler %q", p.Spec.SchedulerName),
				fmt.Sprintf("create the pod again with schedulerName: %s", v1alpha1.SchedulerName),
			})
		}
	}
	return hits
}

func strayPod(f *Facts) []hit {
	hits := make([]hit, 0, 1)
	for _, p := range f.tenants(true) {
		_, err := kube.AssignmentOf(p)
		if err == nil {
			continue
		}
		what := fmt.Sprintf("the pod is on the node %s, bound by the scheduler %q, and has no assignment", p.Spec.NodeName, p.Spec.SchedulerName)
		if !errors.Is(err, kube.ErrNoAssignment) {
			what = fmt.Sprintf("the pod is on the node %s, and its assignment is not valid: %v", p.Spec.NodeName, err)
		}
		hits = append(hits, hit{"Pod/" + kube.PathOf(p), what, fmt.Sprintf("delete the pod and create it with schedulerName: %s; %s", v1alpha1.SchedulerName, applyPolicies)})
	}
	return hits
}

// assigned returns the valid assignments of a node, by the path of the pod.
func (f *Facts) assigned(node string) []vgpu.Assignment {
	var all []vgpu.Assignment
	for _, p := range f.index.pods[node] {
		if !isTenant(p) {
			continue
		}
		if a, err := kube.AssignmentOf(p); err == nil {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b vgpu.Assignment) int { return strings.Compare(a.Pod, b.Pod) })
	return all
}

// held looks at the assignments of each node whose devices are known. It calls gone for those that the devices do not admit, and over
// for those for which the others leave no room.
func (f *Facts) held(gone, over func(a *vgpu.Assignment, err error)) {
	for _, g := range f.known() {
		devices, err := kube.Devices(g)
		if err != nil { // GPUNodeInvalid says it
			continue
		}
		all := f.assigned(g.Name)
		node, err := vgpu.NewNode(g.Name, devices)
		if err != nil { // kube.Devices has checked them
			continue
		}
		for i := range all {
			if err := kube.CheckAssignment(all[i], devices); err != nil {
				gone(&all[i], err)
			} else if err := node.Add(all[i]); err != nil {
				over(&all[i], err)
			}
		}
	}
}

func devicesGone(f *Facts) []hit {
	var hits []hit
	f.held(func(a *vgpu.Assignment, err error) {
		hits = append(hits, hit{"Pod/" + a.Pod, fmt.Sprintf("its assignment does not fit the devices of the node %s: %v", a.Node, err), "delete the pod, and let its controller create it again"})
	}, func(*vgpu.Assignment, error) {})
	return hits
}

func overbooked(f *Facts) []hit {
	var hits []hit
	f.held(func(*vgpu.Assignment, error) {}, func(a *vgpu.Assignment, err error) {
		hits = append(hits, hit{"Pod/" + a.Pod, fmt.Sprintf("the other pods of the node %s leave no room for its share: %v", a.Node, err), "delete the pod where it should not wait for the others to end; look whether slots.models was made smaller, and whether two schedulers of the name are active (leaderElect: false)"})
	})
	return hits
}

// Counts reports whether a check looks at a pod, of which a cluster may have very many.
func Counts(p *v1.Pod, namespace string) bool {
	return p.Namespace == namespace || kube.WantsVGPU(p) || rival(p) != "" || injector(p) != nil || decides(p)
}
