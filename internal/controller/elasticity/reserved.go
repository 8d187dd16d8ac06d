package elasticity

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// readFleets reads the inference fleets, if the feature that sizes them is on.
func (p *pass) readFleets(ctx context.Context) error {
	if p.options.Fleets == nil {
		return nil
	}
	return p.options.Fleets.List(ctx, &p.fleets)
}

// reserved returns what inference fleets will need beyond the replicas that have pods. Pods run or wait, and count as such. A fleet that has
// just grown has replicas without pods: a job that took their GPUs would be preempted a moment later.
//
// A fleet whose times have passed needs the devices now: its own controller may be down, and its last decision stands.
func (p *pass) reserved(c *snapshot.Cluster) (all []elastic.Reserved) {
	slots := map[string]vgpu.Slots{} // of a device, by model
	for _, n := range c.Nodes {
		for i := range n.Devices() {
			slots[n.Devices()[i].Model] = n.Devices()[i].Slots
		}
	}
	pods, unmade := p.podsOfFleets(), map[variantOf]since{}
	for i := range p.fleets.Items {
		f := &p.fleets.Items[i]
		for k := range f.Spec.Variants {
			v := &f.Spec.Variants[k]
			at := slices.IndexFunc(f.Status.Variants, func(s v1alpha1.FleetVariantStatus) bool { return s.Name == v.Name })
			of := slots[v.GPUModel]
			if at < 0 || of <= 0 || v.Slots <= 0 {
				continue
			}
			s, one := &f.Status.Variants[at], vgpu.MilliGPU(int64(v.Slots)*int64(vgpu.WholeGPU)/int64(of))
			made := madeOf(s, pods[f.Namespace])
			if key := (variantOf{f.UID, v.Name}); made < int(s.Replicas) {
				wait := since{s.Replicas, p.now}
				if before, known := p.unmade[key]; known && before.replicas == s.Replicas {
					wait = before
				}
				unmade[key] = wait
				if p.now.Sub(wait.time).Seconds() >= p.config.GiveBack {
					made = int(s.Replicas) // something keeps the pods from being made, such as a quota
				}
			}
			all = append(all, reservations(s, made, v.GPUModel, one)...)
		}
	}
	p.unmade = unmade
	return all
}

// variantOf names a variant of a fleet.
type variantOf struct {
	fleet   types.UID
	variant string
}

// since is the time from which on a variant should have had a number of replicas, and did not have their pods.
type since struct {
	replicas int32
	time     time.Time
}

// podsOfFleets returns the pods with vGPUs that run or wait in the namespaces of fleets.
func (p *pass) podsOfFleets() map[string][]*v1.Pod {
	pods := make(map[string][]*v1.Pod, len(p.fleets.Items))
	for i := range p.fleets.Items {
		pods[p.fleets.Items[i].Namespace] = nil
	}
	if len(pods) == 0 {
		return nil
	}
	for _, pod := range p.objects.Pods {
		ended := pod.DeletionTimestamp != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if all, has := pods[pod.Namespace]; has && !ended && kube.WantsVGPU(pod) {
			pods[pod.Namespace] = append(all, pod)
		}
	}
	return pods
}

// madeOf counts the replicas of a variant that have pods. All that there should be count where the selector is unknown, and where the variant
// neither waits for replicas nor will need more.
func madeOf(s *v1alpha1.FleetVariantStatus, pods []*v1.Pod) (count int) {
	selector, err := labels.Parse(s.Selector)
	if err != nil || s.Selector == "" || s.Ready >= s.Replicas && len(s.Later) == 0 {
		return int(s.Replicas)
	}
	for _, pod := range pods {
		if selector.Matches(labels.Set(pod.Labels)) {
			count++
		}
	}
	return count
}

// reservations returns what each need of a variant adds to those before it, beyond the replicas that have pods.
func reservations(s *v1alpha1.FleetVariantStatus, made int, model string, one vgpu.MilliGPU) []elastic.Reserved {
	needs := make([]elastic.Need, 0, 1+len(s.Later))
	needs = append(needs, elastic.Need{Replicas: int(s.Replicas)})
	for i := range s.Later {
		needs = append(needs, elastic.Need{Replicas: int(s.Later[i].Replicas), From: s.Later[i].From.Unix()})
	}
	return elastic.ReservedFor(model, one, made, needs)
}
