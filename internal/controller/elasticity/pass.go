package elasticity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/sizefield"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// pass is one look at all elastic gangs.
type pass struct {
	*Controller
	now     time.Time
	objects snapshot.Objects
	// members are those that have not ended, by gang.
	members map[podgroup.Ref][]*v1.Pod
	fleets  v1alpha1.InferenceFleetList
	config  elastic.Config
	// owners finds the objects that say how many members there are.
	owners *sizefield.Finder
}

// Pass looks at all elastic gangs once, and carries out what package elastic decides. An error leaves the gangs as they
// are.
func (c *Controller) Pass(ctx context.Context) error {
	p := &pass{Controller: c, now: c.now(), config: c.options.Elastic, owners: &sizefield.Finder{Client: c.options.Dynamic}}
	targets, err := p.read(ctx)
	if err != nil {
		return fmt.Errorf("read the cluster: %w", err)
	}
	gangs, errs := p.gangsWith(ctx, targets)
	p.tellRigid()
	began := time.Now()
	decisions, err := p.decide(c.reader.Read(p.objects), gangs)
	c.metrics.decided(time.Since(began), len(gangs))
	if err != nil {
		return err
	}
	for i := range decisions {
		if err := p.carryOut(ctx, &decisions[i]); err != nil {
			errs = append(errs, fmt.Errorf("gang %s: %w", decisions[i].Ref, err))
		}
	}
	errs = append(errs, p.removeOld(ctx, targets))
	p.completions.forget(p.objects.Pods)
	return errors.Join(errs...)
}

// read reads what the pass goes by, and returns the ElasticTargets by "namespace/name".
func (p *pass) read(ctx context.Context) (map[string]*v1alpha1.ElasticTarget, error) {
	var err error
	p.objects.At = p.now
	if p.objects.Pods, err = p.listers.pods.List(everything); err != nil {
		return nil, err
	}
	if p.objects.Nodes, err = p.listers.nodes.List(everything); err != nil {
		return nil, err
	}
	var gpus v1alpha1.GPUNodeList
	if err := p.options.Reader.List(ctx, &gpus, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range gpus.Items {
		p.objects.GPUNodes = append(p.objects.GPUNodes, &gpus.Items[i])
	}
	if err := p.profiles.Read(ctx, p.options.Reader); err != nil {
		return nil, err
	}
	if err := p.readFleets(ctx); err != nil {
		return nil, err
	}
	var list v1alpha1.ElasticTargetList
	if err := p.options.Reader.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	targets := make(map[string]*v1alpha1.ElasticTarget, len(list.Items))
	for i := range list.Items {
		targets[list.Items[i].Namespace+"/"+list.Items[i].Name] = &list.Items[i]
	}
	return targets, nil
}

// gangsWith returns the elastic gangs that exist, with their targets. The errors are of requests about the owners of some gangs;
// these gangs keep their targets.
func (p *pass) gangsWith(ctx context.Context, targets map[string]*v1alpha1.ElasticTarget) (gangs []*elasticGang, failed []error) {
	p.members = map[podgroup.Ref][]*v1.Pod{}
	ended := map[podgroup.Ref][]*v1.Pod{}
	for _, pod := range p.objects.Pods {
		ref, member := p.gangs.Of(pod)
		switch {
		case !member:
		case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
			ended[ref] = append(ended[ref], pod)
		default:
			p.members[ref] = append(p.members[ref], pod)
		}
	}
	p.learnEnds(ended)
	reports := reportsOf(p.objects.GPUNodes, p.members)
	refs := p.gangs.Elastic()
	gangs = make([]*elasticGang, 0, len(refs))
	taken := map[string]bool{} // two gangs of one name can have one target only
	for _, ref := range refs {
		pg, err := p.gangs.Gang(ref)
		all := p.members[ref]
		if pg == nil || len(all) == 0 || all[0].Spec.SchedulerName != p.scheduler {
			continue // another scheduler reads no targets
		}
		slices.SortFunc(all, byRank)
		g := newGang(pg, all, targets[ref.Namespace+"/"+ref.Name])
		g.ended = ended[ref]
		if g.target != nil && g.target.Spec.Source != string(ref.Source) {
			p.skip(ref, g.target.Spec.Source)
			continue
		}
		if taken[ref.String()] {
			p.skip(ref, "another source")
			continue
		}
		taken[ref.String()] = true
		if problem, is := errors.AsType[*podgroup.Problem](err); err != nil && (!is || !problem.Waits) {
			g.problem = err.Error()
		} else if g.problem = unlike(all); err != nil {
			g.missing = err.Error()
		}
		if err := g.hold(); err != nil {
			g.problem = cmp.Or(g.problem, err.Error())
		}
		g.tuning = p.listers.tuned(g)
		m := p.memory[ref]
		if m == nil || m.at.IsZero() { // its target was there before its members
			m = remember(g, p.rules(), p.now)
			p.memory[ref] = m
		}
		m.like = alikeOf(all[0], g.Sizes[0]) // members that are done lower MinCount
		if g.resizable, err = p.may(ctx, g); err != nil {
			failed = append(failed, fmt.Errorf("gang %s: %w", ref, err))
			g.problem = cmp.Or(g.problem, err.Error())
		}
		p.look(g)
		p.readServers(g, &m.servers)
		if err := m.observe(g, reports, declaresCost(p.profiles.Of(all[0])), p.now); err != nil && err.Error() != m.told {
			m.told = err.Error()
			klog.Background().Info("Ignoring an impossible rate of a gang", "gang", ref.String(), "why", m.told)
		}
		m.progress.Say(m.age(), progressOf(all))
		gangs = append(gangs, g)
	}
	return gangs, failed
}

// unlike says that members differ in what they request, "" where they do not: package elastic counts members, and each takes
// the same.
func unlike(members []*v1.Pod) string {
	first := vgpus(members[0])
	for _, pod := range members {
		if now := vgpus(pod); now == 0 || now != first {
			return fmt.Sprintf("the members of an elastic gang must request the same vGPUs: pod %s requests %d slots, and pod %s %d",
				members[0].Name, first, pod.Name, now)
		}
	}
	return ""
}

// vgpus returns the slots that the containers of a pod request together.
func vgpus(pod *v1.Pod) (slots int64) {
	for i := range pod.Spec.Containers {
		slots += pod.Spec.Containers[i].Resources.Limits.Name(v1alpha1.ResourceVGPU, resource.DecimalSI).Value()
	}
	return slots
}

// skip leaves out a gang whose name is that of another gang with a target.
func (p *pass) skip(ref podgroup.Ref, source string) {
	klog.Background().V(2).Info("Ignoring an elastic gang: another gang of its name has the ElasticTarget", "gang", ref.String(), "source", ref.Source, "other", source)
}

func byRank(a, b *v1.Pod) int {
	if podgroup.Less(a, b) {
		return -1
	}
	return 1
}
