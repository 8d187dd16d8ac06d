package placeable

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// MaxPods bounds the pods of a Workload that the check looks at. Gangs cannot be larger.
const MaxPods = membership.MaxMinMembers

// Classes are the priorities of pods.
type Classes struct {
	// Values and Preempts are by the name of the PriorityClass. Default is the class of pods that name none, "" where there is no such
	// class.
	Values   map[string]int32
	Preempts map[string]bool
	Default  string
}

// group is the pods of a Workload that get places together: a gang, or the pods of one podset.
type group struct {
	gang.Group
	// sets are the names of the podsets, and own says that the group is a gang.
	sets []string
	own  bool
	// spec is how many pods the podsets have, which may be more than have quota. Others are how many members other Workloads have to make.
	spec, others int
	// done is how many of them are done.
	done int
	// counts are the numbers of members of the podsets.
	counts []int
	// priority of the pods, and whether they may preempt others.
	priority int32
	preempts bool
	// first is a pod of the first podset, by which others are compared.
	first *v1.Pod
}

// groups returns the pods of a Workload that ask for GPUs, or are in a gang of such pods. An error names the field of the Workload that is
// wrong.
func (v *View) groups(w *Workload) ([]*group, error) {
	var list []*group
	var waits error // an error of a later podset, which only a new template cures, comes before it
	pods := 0
	for i := range w.Spec.PodSets {
		set := &w.Spec.PodSets[i]
		path := fmt.Sprintf("spec.podSets[%d]", i)
		count, assigned := w.assigned(set)
		if pods += count; count < 0 || pods > MaxPods {
			return nil, fmt.Errorf("%s.count: the check looks at up to %d pods of a Workload, and this one has more", path, MaxPods)
		}
		pod := templateOf(w, set, assigned, v.Flavors, &v.Classes)
		request, err := kube.WholeRequest(pod, v.Now)
		if err == nil {
			err = illegal(pod, &request)
		}
		if err != nil {
			return nil, inTemplate(path, err)
		}
		if err := v.complete(pod, &request); err != nil && waits == nil {
			waits = &unmet{inTemplate(path, err)}
		}
		g, err := v.join(&list, w, set, pod)
		if err != nil {
			return nil, inTemplate(path, err)
		}
		g.spec, g.done = g.spec+int(set.Count), g.done+w.reclaimable(set)
		g.sets, g.counts = append(g.sets, set.Name), append(g.counts, count)
		g.addMembers(gang.Member{Request: request, Kind: v.Cluster.Kind(pod)}, fmt.Sprintf("%s-%s", w.Name, set.Name), count)
		if !g.own {
			g.MinCount = len(g.Members)
		}
	}
	if waits != nil {
		return nil, waits
	}
	list = slices.DeleteFunc(list, func(g *group) bool {
		return !slices.ContainsFunc(g.Members, func(m gang.Member) bool { return len(m.Request.Containers) > 0 })
	})
	for _, g := range list {
		// A gang may have members of several Workloads. The check asks about those of this one.
		g.others = max(0, g.MinCount-g.spec)
		g.MinCount -= g.others
		g.MinCount = gang.Done{Succeeded: g.done, ToCome: g.spec - g.done}.Least(g.MinCount)
		g.leaveHosts()
	}
	return list, nil
}

// leaveHosts leaves out members without GPUs, such as a launcher. They run on any node, and the check knows those with GPUs alone.
func (g *group) leaveHosts() {
	members, counts := g.Members[:0:0], make([]int, len(g.counts))
	for i := range g.Members {
		if m := g.Members[i]; len(m.Request.Containers) > 0 {
			m.Rank = len(members)
			members = append(members, m)
			counts[slices.Index(g.sets, g.setOf(i))]++
		}
	}
	g.MinCount = max(min(1, len(members)), g.MinCount-(len(g.Members)-len(members)))
	g.Members, g.counts = members, counts
}

// setOf returns the podset of a member.
func (g *group) setOf(member int) string {
	for i, count := range g.counts {
		if member -= count; member < 0 {
			return g.sets[i]
		}
	}
	return ""
}

// templateOf returns a pod of a podset, as Kueue will have it made: with the labels and tolerations of its flavors, and with its priority.
func templateOf(w *Workload, set *PodSet, assigned map[v1.ResourceName]string, flavors map[string]Flavor, classes *Classes) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: *set.Template.ObjectMeta.DeepCopy(), Spec: set.Template.Spec}
	pod.Namespace, pod.Name, pod.UID = w.Namespace, w.Name+"-"+set.Name, types.UID(string(w.UID)+"/"+set.Name)
	pod.Spec.NodeSelector, pod.Spec.Tolerations = maps.Clone(pod.Spec.NodeSelector), slices.Clone(pod.Spec.Tolerations)
	seen := map[string]bool{}
	for _, resource := range slices.Sorted(maps.Keys(assigned)) {
		name := assigned[resource]
		if seen[name] {
			continue
		}
		seen[name] = true
		for key, value := range flavors[name].NodeLabels {
			if pod.Spec.NodeSelector == nil {
				pod.Spec.NodeSelector = map[string]string{}
			}
			pod.Spec.NodeSelector[key] = value
		}
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, flavors[name].Tolerations...)
	}
	if pod.Spec.PriorityClassName == "" {
		pod.Spec.PriorityClassName = classes.Default
	}
	name := pod.Spec.PriorityClassName
	pod.Spec.Priority = new(classes.Values[name])
	if preempts, known := classes.Preempts[name]; known && !preempts && pod.Spec.PreemptionPolicy == nil {
		pod.Spec.PreemptionPolicy = new(v1.PreemptNever)
	}
	return pod
}

// unmet is why the cluster does not meet what a pod wants, by the curves and the profile of its workload or by the PodGroups that are served: all of
// these may change.
type unmet struct{ error }

// illegal returns what is wrong with the rate or the latency that a pod wants, whatever its curves say.
func illegal(pod *v1.Pod, r *vgpu.Request) error {
	if _, _, err := workloads.WantedLatency(pod, r); err != nil {
		return err
	}
	_, _, err := workloads.WantedRate(pod, r)
	return err
}

// complete sizes a request by the curves of its workload, as the scheduler does.
func (v *View) complete(pod *v1.Pod, r *vgpu.Request) error {
	if len(r.Containers) == 0 {
		return nil
	}
	if ref, member := v.Served.Of(pod); member {
		if text := v.Served.Lacks(ref); text != "" {
			return errors.New(text)
		}
	}
	if v.offers == nil {
		v.offers = vgpu.Offers(v.Cluster.Nodes)
	}
	profile := v.Profiles.Of(pod)
	if err := v.Curves.Complete(pod, r, profile, v.offers); err != nil {
		return err
	}
	if err := workloads.TooLittle(pod, r, profile, v.offers); err != nil {
		return err
	}
	return nil
}

// join returns the group of a pod: the gang that it names, or a new group.
func (v *View) join(list *[]*group, w *Workload, set *PodSet, pod *v1.Pod) (*group, error) {
	name, least, err := v.gangOf(pod)
	if err != nil {
		return nil, err
	}
	required, _, err := membership.Topology(pod.Annotations)
	if err != nil {
		return nil, err
	}
	g := &group{own: least > 0, priority: *pod.Spec.Priority, preempts: pod.Spec.PreemptionPolicy == nil || *pod.Spec.PreemptionPolicy != v1.PreemptNever, first: pod}
	g.Name, g.MinCount, g.Wishes = w.Namespace+"/"+name, least, gang.Wishes{Required: required}
	if name == "" {
		g.Name = w.Namespace + "/" + w.Name + "-" + set.Name
		*list = append(*list, g)
		return g, nil
	}
	for _, other := range *list {
		if other.Name != g.Name {
			continue
		}
		if field, value, there := membership.LikenessOf(other.first).Difference(membership.LikenessOf(pod)); field != "" {
			return nil, &kube.FieldError{Field: field, Legal: fmt.Sprintf("it is %s here and %s in another podset of the gang %s: it must be the same for all members of a gang", there, value, name)}
		}
		return other, nil
	}
	*list = append(*list, g)
	return g, nil
}

// gangOf returns the name of the gang of a pod, "" for none, and the least number of members. The number is 0 for gangs with a PodGroup, which the check
// does not read.
func (v *View) gangOf(pod *v1.Pod) (name string, least int, err error) {
	ref, member := v.Served.Of(pod)
	if !member {
		return "", 0, nil
	}
	if err = podgroup.Unnamed(ref); err == nil && ref.Source == podgroup.Label {
		if least, err = membership.MinMembers(pod); err == nil {
			_, err = membership.ElasticSizes(pod.Annotations, least)
		}
	}
	return ref.Name, least, err
}

// addMembers adds pods of a template.
func (g *group) addMembers(m gang.Member, name string, count int) {
	uid := m.Request.UID
	for i := range count {
		m.Request.UID, m.Request.Pod = vgpu.UID(fmt.Sprintf("%s/%d", uid, i)), fmt.Sprintf("%s/%d", name, i)
		m.Rank = len(g.Members)
		g.Members = append(g.Members, m)
	}
}

// inTemplate says where in a Workload the wrong field of a pod is.
func inTemplate(path string, err error) error {
	var wrong *kube.FieldError
	if !errors.As(err, &wrong) {
		return fmt.Errorf("%s.template: %w", path, err)
	}
	value := ""
	if wrong.Value != "" {
		value = fmt.Sprintf("%q is not legal, ", wrong.Value)
	}
	return fmt.Errorf("%s.template.%s: %s%s", path, wrong.Field, value, wrong.Legal)
}
