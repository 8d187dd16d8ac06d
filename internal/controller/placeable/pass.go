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

	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	// startsWithin is how long after an answer Ready a Workload without pods on nodes still has its places. Pods that take longer wait for
	// something else, and the places would be lost for others.
	startsWithin = 2 * time.Minute
	// maxAnswers bounds the answers of one pass: the first ones by turn. Others wait for a pass in which some of these have been answered, or
	// have given their quota back.
	maxAnswers = 100
)

// visit is one Workload in one pass.
type visit struct {
	Workload
	object *unstructured.Unstructured
	check  *CheckState
}

// Pass answers every Workload that waits for it. A Workload that cannot be read or written is left for the next pass, and the others go on.
func (c *Controller) Pass(ctx context.Context) error {
	names, err := c.activate(ctx)
	if len(names) == 0 {
		c.metrics.waiting.Set(0)
		return err
	}
	started, waiting, failed := c.visits(names)
	c.metrics.waiting.Set(0)
	errs := []error{err, failed}
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
	stay := 0
	for _, w := range waiting[:min(len(waiting), maxAnswers)] {
		began := time.Now()
		answer := view.Decide(&w.Workload)
		c.metrics.took.Observe(time.Since(began).Seconds())
		if answer.State != Ready && answer.State != Rejected {
			stay++
		}
		answer = answer.Patient(c.now().Sub(w.reservedAt()), c.options.Patience)
		if err := c.write(ctx, w, answer); err != nil {
			errs = append(errs, fmt.Errorf("workload %s/%s: %w", w.Namespace, w.Name, err))
		}
	}
	c.metrics.waiting.Set(float64(stay + max(0, len(waiting)-maxAnswers)))
	return errors.Join(errs...)
}

// visits returns the Workloads that were answered Ready a moment ago, and those that wait for an answer, both by turn.
func (c *Controller) visits(names map[string]bool) (started, waiting []*visit, failed error) {
	objects, err := c.workloads.List(labels.Everything())
	if err != nil {
		return nil, nil, fmt.Errorf("list Workloads: %w", err)
	}
	var errs []error
	there := map[types.UID]bool{}
	for _, object := range objects {
		w := &visit{object: object.(*unstructured.Unstructured)}
		if err := read(w.object, &w.Workload); err != nil {
			errs = append(errs, err)
			continue
		}
		there[w.UID] = true
		if w.check = w.Workload.check(names); w.check == nil || !w.holdsQuota() {
			continue
		}
		switch {
		case w.check.State == Pending:
			waiting = append(waiting, w)
		case w.check.State == Ready && c.now().Sub(w.check.LastTransitionTime.Time) < startsWithin:
			started = append(started, w)
		}
	}
	maps.DeleteFunc(c.told, func(uid types.UID, _ time.Time) bool { return !there[uid] })
	for _, list := range [][]*visit{started, waiting} {
		slices.SortFunc(list, func(a, b *visit) int { return byTurn(&a.Workload, &b.Workload) })
	}
	return started, waiting, errors.Join(errs...)
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
	if err := c.options.GPUNodes.List(ctx, &gpus, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list GPUNodes: %w", err)
	}
	for i := range gpus.Items {
		o.GPUNodes = append(o.GPUNodes, &gpus.Items[i])
	}
	v := &View{Cluster: c.reader.Read(o), Flavors: map[string]Flavor{}}
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
	list, err := groups(v.Cluster, w, v.Flavors, &v.Classes)
	if err != nil {
		return // no pod of it runs
	}
	bound := 0
	for _, pod := range v.Pods {
		if w.owns(pod) {
			bound++
		}
	}
	for _, g := range list {
		here := min(bound, len(g.Members))
		bound -= here
		g.Members = g.Members[here:]
		if g.MinCount = min(max(1, g.MinCount-here), len(g.Members)); g.MinCount > 0 {
			v.fit(g)
		}
	}
}

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
