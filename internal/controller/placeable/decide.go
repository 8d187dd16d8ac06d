package placeable

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/internal/controller/profiles"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// View is the cluster as the answers of one pass see it. Each Workload that fits takes its places out of it.
type View struct {
	Cluster *snapshot.Cluster
	// Pods are those on nodes.
	Pods    []*v1.Pod
	Flavors map[string]Flavor
	Classes Classes
	// Curves and Profiles say what pods get that want a rate or a latency.
	Curves   workloads.Curves
	Profiles profiles.Profiles
	// offers are the devices of the cluster, nil until they are counted.
	offers []vgpu.Offer
	// Served says which PodGroups the scheduler reads.
	Served podgroup.Served
	// Guards say which pods the scheduler's preemption spares. They are nil if the scheduler evicts no pods. Now is the time of the pass.
	Guards *victims.Guards
	Now    time.Time
}

// Answer is whether a Workload fits.
type Answer struct {
	// State is Ready where it fits, Pending where other pods use what it needs, Retry where it would not fit an empty cluster, and Rejected
	// where the Workload itself is wrong.
	State State
	// Message says why, in whole sentences.
	Message string
}

// maxMessage bounds messages, in bytes: they name levels and nodes, which users name.
const maxMessage = 2048

// Decide says whether the pods of a Workload fit on real devices now, all podsets together, and takes their places. A Workload that does not
// fit takes none. Pods of a lower priority do not stand in the way of pods that may preempt: the scheduler evicts them.
func (v *View) Decide(w *Workload) Answer {
	if !w.wantsGPU() {
		return Answer{Ready, "No pod asks for a GPU"}
	}
	list, err := v.groups(w)
	if _, is := errors.AsType[*unmet](err); is {
		return Answer{Retry, cut("The scheduler would not place the pods now. " + err.Error())}
	}
	if err != nil {
		return Answer{Rejected, cut("The pods can never run. " + err.Error() + ". Make the workload anew")}
	}
	return v.decide(list)
}

// decide is Decide for groups.
func (v *View) decide(list []*group) Answer {
	after := &View{Cluster: v.Cluster.Without(nil), Pods: v.Pods, Guards: v.Guards, Now: v.Now}
	placed, of, preempts := 0, 0, false
	var rest []string
	nodes := map[string]bool{}
	for _, g := range list {
		f := after.fit(g)
		if f.err != nil {
			return Answer{Pending, cut("The check failed: " + f.err.Error())}
		}
		if f.refusal != nil {
			return refused(g, f.refusal)
		}
		for _, place := range f.places {
			if place.Node != "" {
				nodes[place.Node] = true
				placed++
			}
		}
		of, preempts = of+len(g.Members), preempts || f.preempts
		if g.others > 0 {
			rest = append(rest, fmt.Sprintf(". The gang %s waits for %d members of other workloads, by its annotation min-members", g.Name, g.others))
		}
	}
	v.Cluster = after.Cluster
	text := fmt.Sprintf("%d of %d pods have places on %s", placed, of, counted(len(nodes), "node"))
	if preempts {
		text += ", once the scheduler has evicted pods of a lower priority"
	}
	if placed < of {
		text += ", which is enough to start"
	}
	return Answer{Ready, cut(text + strings.Join(rest, ""))}
}

// fitting is whether a group fits, and where.
type fitting struct {
	places   []vgpu.Assignment
	preempts bool
	refusal  *gang.Refusal
	err      error
}

// fit places a group, and books its places.
func (v *View) fit(g *group) fitting {
	if g.MinCount > len(g.Members) {
		return fitting{refusal: &gang.Refusal{Reason: gang.NoRoom}}
	}
	v.Cluster.Divide(g.Wishes)
	quick := gang.Config{SkipExplanation: true}
	plan, err := gang.Place(&v.Cluster.Cluster, &g.Group, quick)
	if err != nil {
		return fitting{err: err}
	}
	if plan.Refused == nil {
		return fitting{places: plan.Places, err: book(v.Cluster, g, plan.Places)}
	}
	if lower := v.lower(g); len(lower) > 0 {
		emptier := v.Cluster.Without(lower)
		second, err := gang.Place(&emptier.Cluster, &g.Group, quick)
		if err != nil {
			return fitting{err: err}
		}
		if second.Refused == nil {
			v.evict(lower, g, second.Places)
			return fitting{places: second.Places, preempts: true, err: book(v.Cluster, g, second.Places)}
		}
	}
	plan, err = gang.Place(&v.Cluster.Cluster, &g.Group, gang.Config{})
	return fitting{refusal: plan.Refused, err: err}
}

// lower returns the pods that the scheduler may evict for a group.
func (v *View) lower(g *group) (list []*v1.Pod) {
	if !g.preempts || v.Guards == nil {
		return nil
	}
	for _, pod := range v.Pods {
		if _, placed := v.Cluster.Placed(pod); placed && corev1helpers.PodPriority(pod) < g.priority && v.Guards.Of(pod, v.Now) == "" {
			list = append(list, pod)
		}
	}
	return list
}

// evict takes pods out of the places that a group gets. Those that still have room beside the group stay, those of the highest priority first:
// the scheduler does not evict more than it needs to.
func (v *View) evict(lower []*v1.Pod, g *group, places []vgpu.Assignment) {
	nodes := map[string]bool{}
	for i := range places {
		nodes[places[i].Node] = true
	}
	lower = slices.DeleteFunc(lower, func(pod *v1.Pod) bool {
		a, _ := v.Cluster.Placed(pod)
		return !nodes[a.Node]
	})
	slices.SortStableFunc(lower, func(a, b *v1.Pod) int { return cmp.Compare(corev1helpers.PodPriority(b), corev1helpers.PodPriority(a)) })
	then := v.Cluster.Without(lower)
	if book(then, g, places) != nil {
		return // package gang found the places, so they are there; the caller's own booking says what is wrong
	}
	v.Cluster = v.Cluster.Without(slices.DeleteFunc(lower, func(pod *v1.Pod) bool { return then.Return(pod, v.Cluster) }))
}

// book takes the places of a group.
func book(c *snapshot.Cluster, g *group, places []vgpu.Assignment) error {
	var errs []error
	for i := range places {
		if places[i].Node != "" {
			errs = append(errs, c.Book(places[i], g.Members[i].Request.Host))
		}
	}
	return errors.Join(errs...)
}

// refused says why a group has no places.
func refused(g *group, r *gang.Refusal) Answer {
	what := "podset " + strings.Join(g.sets, ", ")
	if g.own {
		what = "gang " + g.Name
	}
	if len(g.Members) < g.MinCount {
		return Answer{Retry, fmt.Sprintf("The %s has quota for %d pods, and at least %d must run: more quota would help", what, len(g.Members), g.MinCount)}
	}
	state, help := Pending, ""
	switch {
	case r.Reason != gang.NoRoom:
		state, help = Retry, ". No pod that ends would help: more or other nodes would, or a smaller request"
	case r.Helps == vgpu.EvictionHelps && len(r.Blockers) == 0:
		help = ". Pods that end would help"
	}
	return Answer{state, cut("The " + what + " " + r.String() + help)}
}

// cut bounds a message.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "…"
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Backoff are the times between two tries of a Workload that gave its quota back: the first, and the longest, which each try doubles towards.
const (
	FirstBackoff   = time.Minute
	LongestBackoff = 30 * time.Minute
)

// backoff returns the time until the next try, after so many.
func backoff(tries int32) time.Duration {
	wait := FirstBackoff
	for range min(tries, 16) {
		wait = min(2*wait, LongestBackoff)
	}
	return wait
}

// Patient returns the answer for a Workload that has kept quota for a while: one that still does not fit gives it back, for others that may.
func (a Answer) Patient(held, patience time.Duration) Answer {
	if a.State == Pending && held >= patience {
		a.State = Retry
	}
	return a
}

// byTurn orders Workloads: those of a higher priority first, then the oldest.
func byTurn(a, b *Workload) int {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.Name, b.Name))
}

// wantsGPU reports whether any podset of a Workload asks for vGPUs.
func (w *Workload) wantsGPU() bool {
	return slices.ContainsFunc(w.Spec.PodSets, func(s PodSet) bool {
		return kube.AnyWants(s.Template.Spec.Containers) || kube.AnyWants(s.Template.Spec.InitContainers)
	})
}
