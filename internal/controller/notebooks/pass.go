package notebooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/notebook"
)

const (
	// together bounds how many notebooks are looked at side by side. More opens more connections at once; fewer lets servers that do not
	// answer delay the others.
	together = 32
	// within bounds the time of a look. A server that takes longer counts as unreachable.
	within = 10 * time.Second
	// lostLooks is after how many looks in a row without an answer an event says so. One is missed whenever a server is busy for a while.
	lostLooks = 3
)

// visit is one notebook in one pass.
type visit struct {
	*parking.Workload
	declared *parking.Declared
	memory   *memory
	// pod is nil where there is none.
	pod *v1.Pod
	// seen is what there is of it; lost says why it is unknown what works.
	seen notebook.Observation
	lost *lostError
	plan notebook.Plan
}

// Pass looks at all notebooks once, and carries out what package notebook decides. A notebook that cannot be read or written keeps its pod, and
// the others go on; the error names it.
func (c *Controller) Pass(ctx context.Context) error {
	visits, invalid, err := c.visits()
	if err != nil {
		return err
	}
	errs := make([]error, len(visits))
	room := make(chan struct{}, together)
	var all sync.WaitGroup
	for i, v := range visits {
		all.Go(func() {
			room <- struct{}{}
			defer func() { <-room }()
			if err := c.visit(ctx, v); err != nil {
				errs[i] = fmt.Errorf("%s: %w", v.Workload, err)
			}
		})
	}
	all.Wait()
	c.metrics.count(visits, invalid)
	return errors.Join(errs...)
}

// visits returns the notebooks that may be parked, in the order of their names, and how many the controller leaves alone for a problem that an event
// tells. Workloads that are gone are forgotten.
func (c *Controller) visits() (list []*visit, invalid int, err error) {
	workloads, err := c.workloads()
	if err != nil {
		return nil, 0, err
	}
	there, scalers, now := make(map[types.UID]bool, len(workloads)), c.scalers(), c.now()
	for _, w := range workloads {
		d, err := parking.Read(w.Annotations)
		if d == nil && err == nil || w.Leaves {
			continue
		}
		there[w.UID] = true
		if c.memory[w.UID] == nil {
			c.memory[w.UID] = &memory{}
		}
		v := &visit{Workload: w, declared: d, memory: c.memory[w.UID]}
		replicas := w.Replicas
		if w.IsWoken {
			replicas = 0 // the owner came back: that undoes no change
		}
		contested := v.memory.replicas.Read(replicas, 0, now)
		problem := problemOf(w, err, scalers[w.String()])
		if problem == "" && contested {
			problem = v.memory.replicas.Undone().Says(w.String(), "replicas", "spec.replicas")
			if v.memory.replicas.Began(now) {
				c.metrics.contests.Inc()
			}
		}
		if problem != "" {
			c.complain(v, problem)
			v.memory.decided = notebook.Memory{}
			invalid++
			continue
		}
		list = append(list, v)
	}
	maps.DeleteFunc(c.memory, func(uid types.UID, _ *memory) bool { return !there[uid] })
	return list, invalid, nil
}

// workloads returns all StatefulSets and Deployments.
func (c *Controller) workloads() ([]*parking.Workload, error) {
	sets, err := c.statefulSets.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list StatefulSets: %w", err)
	}
	deployments, err := c.deployments.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	all := make([]*parking.Workload, 0, len(sets)+len(deployments))
	for _, s := range sets {
		all = append(all, parking.OfStatefulSet(s))
	}
	for _, d := range deployments {
		all = append(all, parking.OfDeployment(d))
	}
	slices.SortFunc(all, func(a, b *parking.Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return all, nil
}

// scalers returns the name of the HorizontalPodAutoscaler of each object that has one, by its kind, namespace and name as Workload.String writes them.
func (c *Controller) scalers() map[string]string {
	all, err := c.autoscalers.List(labels.Everything())
	if err != nil {
		all = nil // the store of an informer has no errors
	}
	names := make(map[string]string, len(all))
	for _, h := range all {
		of := (&parking.Workload{Kind: h.Spec.ScaleTargetRef.Kind, Namespace: h.Namespace, Name: h.Spec.ScaleTargetRef.Name}).String()
		if before, twice := names[of]; !twice || h.Name < before {
			names[of] = h.Name
		}
	}
	return names
}

// problemOf says why a workload is left alone, empty where it is not. The error is of its annotations, and scaler the name of its HorizontalPodAutoscaler, if any.
func problemOf(w *parking.Workload, err error, scaler string) string {
	if err != nil {
		return err.Error()
	}
	if why := w.Unfit(); why != "" {
		return why
	}
	if scaler != "" {
		return fmt.Sprintf("HorizontalPodAutoscaler %s scales %s: remove it, or the annotations of notebooks", scaler, w)
	}
	return ""
}

// complain tells a problem once.
func (c *Controller) complain(v *visit, problem string) {
	if v.memory.said != problem {
		v.memory.said = problem
		c.event(v, v1.EventTypeWarning, reasonInvalid, "Look", problem+". The notebook is left as it is")
	}
}

// visit looks at a notebook, decides and carries that out.
func (c *Controller) visit(ctx context.Context, v *visit) error {
	ctx, end := context.WithTimeout(ctx, within)
	defer end()
	if err := c.observe(ctx, v); err != nil {
		return err
	}
	c.tellLost(v)
	var err error
	if v.plan, v.memory.decided, err = notebook.Decide(v.memory.decided, v.seen, c.now(), c.config(v.declared)); err != nil {
		return err
	}
	return c.apply(ctx, v)
}

// config returns how to decide on a notebook.
func (c *Controller) config(d *parking.Declared) notebook.Config {
	return notebook.Config{Limit: d.Idle, Notice: min(c.options.Notice, d.Idle/2), Step: 2 * c.options.Every * time.Duration(max(1, c.options.Pace))}
}
