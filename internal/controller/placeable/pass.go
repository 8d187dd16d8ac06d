package placeable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	// startsWithin is how long after Kueue admitted it a Workload without pods on nodes still has its places. Pods that take longer wait for
	// something else, and the places would be lost for others.
	startsWithin = 2 * time.Minute
	// maxAnswers bounds the answers of one pass. If more Workloads wait, the next pass goes on after them.
	maxAnswers = 100
	// maxPodsInPass bounds their pods, but for the first Workload: 1,000 pods are placed in some ten milliseconds, and those that do not fit three times.
	maxPodsInPass = 5000
)

// visit is one Workload in one pass.
type visit struct {
	Workload
	object *unstructured.Unstructured
	check  *CheckState
	// names are those of the checks of the controller.
	names map[string]bool
}

// Pass answers every Workload that waits for it. A Workload that cannot be read or written is left for the next pass, and the others go on.
func (c *Controller) Pass(ctx context.Context) error {
	names, err := c.activate(ctx)
	if len(names) == 0 {
		c.metrics.waiting.Set(0)
		return err
	}
	started, waiting, running, failed := c.visits(names)
	c.metrics.waiting.Set(0)
	errs := []error{err, failed}
	for _, w := range running { // Kueue ends the pods of an admitted Workload whose check is anything else
		errs = append(errs, c.tell(ctx, w, Answer{Ready, "It runs already"}))
	}
	if len(waiting) == 0 {
		return errors.Join(errs...)
	}
	view, err := c.view(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, w := range started {
		view.keep(&w.Workload)
	}
	now := c.now()
	turn := c.turn(waiting)
	stay := len(waiting) - len(turn)
	for _, w := range turn {
		began := time.Now()
		answer := view.Decide(&w.Workload)
		c.metrics.took.Observe(time.Since(began).Seconds())
		if answer.State != Ready && answer.State != Rejected {
			stay++
		}
		answer = answer.Patient(now.Sub(w.reservedAt()), c.options.Patience)
		errs = append(errs, c.tell(ctx, w, answer))
	}
	c.metrics.waiting.Set(float64(stay))
	return errors.Join(errs...)
}

// tell writes an answer. The error names the Workload.
func (c *Controller) tell(ctx context.Context, w *visit, answer Answer) error {
	if err := c.write(ctx, w, answer); err != nil {
		return fmt.Errorf("workload %s/%s: %w", w.Namespace, w.Name, err)
	}
	return nil
}

// turn returns the Workloads that a pass looks at: all, or where they are too many or too large those after the ones of the last pass. Otherwise many that
// stay would keep others from ever being looked at.
func (c *Controller) turn(waiting []*visit) []*visit {
	if c.next >= len(waiting) || len(few(waiting)) == len(waiting) {
		c.next = 0
	}
	turn := few(waiting[c.next:])
	c.next += len(turn)
	return turn
}

// few returns the first Workloads, as many as a pass may look at.
func few(waiting []*visit) []*visit {
	pods := 0
	for i, w := range waiting {
		for k := range w.Spec.PodSets {
			pods += int(w.Spec.PodSets[k].Count)
		}
		if i == maxAnswers || i > 0 && pods > maxPodsInPass {
			return waiting[:i]
		}
	}
	return waiting
}

// visits returns the Workloads that were answered Ready and may not have all their pods yet, and those that wait for an answer, both by turn.
// Running are those that Kueue had admitted when it gave them the check.
func (c *Controller) visits(names map[string]bool) (started, waiting, running []*visit, failed error) {
	objects, err := c.workloads.List(labels.Everything())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("list Workloads: %w", err)
	}
	var errs []error
	there := map[types.UID]bool{}
	for _, object := range objects {
		w := &visit{object: object.(*unstructured.Unstructured), names: names}
		if err := read(w.object, &w.Workload); err != nil {
			errs = append(errs, err)
			continue
		}
		there[w.UID] = true
		if w.check = w.Workload.check(names); w.check == nil || !w.holdsQuota() {
			continue
		}
		switch since := w.admittedAt(); {
		case w.check.State == Pending && since.IsZero():
			waiting = append(waiting, w)
		case w.check.State == Pending:
			running = append(running, w)
		case w.check.State == Ready && (since.IsZero() || c.now().Sub(since) < startsWithin):
			started = append(started, w)
		}
	}
	maps.DeleteFunc(c.told, func(uid types.UID, _ time.Time) bool { return !there[uid] })
	for _, list := range [][]*visit{started, waiting} {
		slices.SortFunc(list, func(a, b *visit) int { return byTurn(&a.Workload, &b.Workload) })
	}
	return started, waiting, running, errors.Join(errs...)
}

// view reads the cluster.
func (c *Controller) view(ctx context.Context) (*View, error) {
	o := snapshot.Objects{At: c.now()}
	var err error
	if o.Pods, err = c.pods.List(labels.Everything()); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	if o.Nodes, err = c.nodes.List(labels.Everything()); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var gpus v1alpha1.GPUNodeList
	if err := c.options.Reader.List(ctx, &gpus, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list GPUNodes: %w", err)
	}
	for i := range gpus.Items {
		o.GPUNodes = append(o.GPUNodes, &gpus.Items[i])
	}
	if err := c.profiles.Read(ctx, c.options.Reader); err != nil {
		return nil, err
	}
	v := &View{
		Cluster: c.reader.Read(o), Flavors: map[string]Flavor{}, Curves: c.options.Curves, Profiles: c.profiles, Served: c.options.Served,
		Guards: c.guards, Now: o.At,
	}
	v.Pods = slices.DeleteFunc(slices.Clone(o.Pods), func(p *v1.Pod) bool { return p.Spec.NodeName == "" })
	if v.Classes, err = c.priorities(); err != nil {
		return nil, err
	}
	flavors, err := c.flavors.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list ResourceFlavors: %w", err)
	}
	for _, object := range flavors {
		var f struct {
			Spec Flavor `json:"spec"`
		}
		u := object.(*unstructured.Unstructured)
		if err := read(u, &f); err != nil {
			return nil, err
		}
		v.Flavors[u.GetName()] = f.Spec
	}
	return v, nil
}

// priorities reads the PriorityClasses.
func (c *Controller) priorities() (Classes, error) {
	list, err := c.classes.List(labels.Everything())
	if err != nil {
		return Classes{}, fmt.Errorf("list PriorityClasses: %w", err)
	}
	out := Classes{Values: map[string]int32{}, Preempts: map[string]bool{}}
	for _, class := range list {
		out.Values[class.Name] = class.Value
		out.Preempts[class.Name] = class.PreemptionPolicy == nil || *class.PreemptionPolicy != v1.PreemptNever
		if class.GlobalDefault {
			out.Default = class.Name
		}
	}
	return out, nil
}

// keep takes the places of the pods of a Workload that have no node yet: Kueue has just started it.
func (v *View) keep(w *Workload) {
	list, err := v.groups(w)
	if err != nil {
		return // no pod of it runs
	}
	bound := map[string]int{} // by podset
	for _, pod := range v.Pods {
		ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if w.owns(pod) && pod.DeletionTimestamp == nil && !ended && kube.WantsVGPU(pod) {
			bound[pod.Labels[podSetLabel]]++
		}
	}
	for _, g := range list {
		members := g.Members[:0:0]
		for i := range g.Members {
			switch set := g.setOf(i); {
			case bound[set] > 0:
				bound[set]--
			case bound[""] > 0: // a pod without the label is one of any podset
				bound[""]--
			default:
				members = append(members, g.Members[i])
			}
		}
		g.MinCount = min(max(1, g.MinCount-(len(g.Members)-len(members))), len(members))
		if g.Members = members; g.MinCount > 0 {
			v.fit(g)
		}
	}
}

// podSetLabel is the label by which Kueue names the podset of a pod.
const podSetLabel = "kueue.x-k8s.io/podset"

// jobSetUID is the label by which JobSet marks its pods.
const jobSetUID = "jobset.sigs.k8s.io/jobset-uid"

// owns reports whether a pod is one of a Workload: the pod itself is queued, or what Kueue queues made it.
func (w *Workload) owns(pod *v1.Pod) bool {
	if pod.Namespace != w.Namespace {
		return false
	}
	return slices.ContainsFunc(w.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.UID == pod.UID || string(o.UID) == pod.Labels[jobSetUID] ||
			slices.ContainsFunc(pod.OwnerReferences, func(p metav1.OwnerReference) bool { return p.UID == o.UID })
	})
}
