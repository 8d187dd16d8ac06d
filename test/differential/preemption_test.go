package differential

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// preemptions that evict somebody are put before the plugin and the model.
	preemptions = 500
	// perCrowd is how many preemptors each random cluster sees.
	perCrowd = 20
)

// TestInTreePreemption: the simulator's model of DefaultPreemption chooses the node and the victims that the plugin itself
// chooses, in at least 95 % of the decisions of 500 preemptors, on random clusters with pods of unlike priorities and budgets.
//
// They may differ where a pod counts against two budgets, of which the plugin looks at any one first.
func TestInTreePreemption(t *testing.T) {
	var c tally
	for seed := uint64(1); c.evicting < preemptions; seed++ {
		population := newPopulation(t, seed)
		s := newStock(t, population)
		s.awaitShares()
		population.hold(t, s.shares.Hold)
		for i := range perCrowd {
			r, p, ok := population.preemptor(i)
			if !ok || c.evicting == preemptions {
				break
			}
			c.count(t, fmt.Sprintf("seed %d, pod %d", seed, i), choiceOfModel(t, population, &r, 0), choiceOfPlugin(s, p))
		}
	}
	t.Logf("%d of %d preemptions with victims are the same (%.1f %%); %d victims, %d preemptions of several, %d with violations; "+
		"besides, both found %d times nobody to evict", c.same, c.evicting, 100*float64(c.same)/float64(c.evicting), c.victims,
		c.several, c.violating, c.idle)
	if float64(c.same) < 0.95*float64(c.evicting) {
		t.Errorf("only %d of %d preemptions are the same", c.same, c.evicting)
	}
	if c.several < preemptions/4 || c.violating < preemptions/20 || c.idle < preemptions/20 {
		t.Errorf("the clusters are not what this test is about: %+v", c)
	}
}

// TestInTreeStopsEarly: in a cluster of more nodes than the plugin cares to look at, chance has a say in its choices, as in those
// of the model. The plugin looks at 100 of 160 nodes, so it finds the best in 5 of 8 decisions, the second best in about 15 of
// 64.
func TestInTreeStopsEarly(t *testing.T) {
	const asked, drawn, apart = 400, 2000, .12 // four deviations of the larger share
	population := newWidePopulation(t, 160)
	s := newStock(t, population)
	s.awaitShares()
	r := vgpu.Request{UID: "preemptor", Pod: "default/preemptor", Priority: 1, Containers: whole}
	p := pod(&sim.Job{Request: r})
	p.Spec.Priority, p.Spec.PreemptionPolicy = &r.Priority, ptr.To(v1.PreemptLowerPriority)
	plugin, model := map[string]float64{}, map[string]float64{}
	for range asked {
		plugin[choiceOfPlugin(s, p).String()] += 1. / asked
	}
	for draw := uint64(1); draw <= drawn; draw++ {
		model[choiceOfModel(t, population, &r, draw).String()] += 1. / drawn
	}
	for choice := range plugin {
		if math.Abs(plugin[choice]-model[choice]) > apart {
			t.Errorf("the plugin has %s in %.3f of its decisions, the model in %.3f", choice, plugin[choice], model[choice])
		}
	}
	shares := slices.Sorted(maps.Values(model))
	slices.Reverse(shares)
	t.Logf("%d choices of the plugin, %d of the model, whose shares are %.3f", len(plugin), len(model), shares)
	if len(shares) < 2 || math.Abs(shares[0]-5./8) > apart || math.Abs(shares[1]-15./64) > apart {
		t.Errorf("the shares of the model are %.3f, want about 0.625, 0.234", shares)
	}
}

// choice is whom somebody would evict, and where.
type choice struct {
	node       string
	victims    []string
	violations int
}

func (c choice) String() string {
	return fmt.Sprintf("%q evicts [%s] with %d violations", c.node, strings.Join(c.victims, " "), c.violations)
}

// tally counts decisions.
type tally struct {
	same, evicting, victims, several, violating, idle int
}

func (c *tally) count(t *testing.T, where string, model, plugin choice) {
	t.Helper()
	if model.node == "" && plugin.node == "" {
		c.idle++
		return
	}
	c.evicting++
	c.victims += len(plugin.victims)
	if len(plugin.victims) > 1 {
		c.several++
	}
	if plugin.violations > 0 {
		c.violating++
	}
	if model.String() == plugin.String() {
		c.same++
	} else {
		t.Logf("%s: the model has %v, the plugin %v", where, model, plugin)
	}
}

func choiceOfModel(t *testing.T, c *population, r *vgpu.Request, draw uint64) choice {
	t.Helper()
	e, err := (&sim.InTree{Started: c.started, Draw: draw}).Victims(c.cluster.Nodes(), r, &c.candidates)
	if err != nil {
		t.Fatal(err)
	}
	var victims []*v1.Pod
	for _, i := range e.Pods {
		victims = append(victims, c.pods[i])
	}
	return choice{e.Node, namesOf(victims), e.Violations}
}

func choiceOfPlugin(s *stock, p *v1.Pod) choice {
	s.t.Helper()
	node, victims := s.preempt(p)
	if node == "" {
		return choice{}
	}
	return choice{node, namesOf(victims.Pods), int(victims.NumPDBViolations)}
}

// awaitShares waits until GPUShare has read the GPUNodes: until then it refuses all pods with that reason.
func (s *stock) awaitShares() {
	s.t.Helper()
	j := sim.Job{Request: vgpu.Request{UID: "probe", Containers: []vgpu.ContainerRequest{{Name: "main", Slots: 128_000}}}}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		_, status, _ := s.framework.RunPreFilterPlugins(s.t.Context(), framework.NewCycleState(), pod(&j))
		if !strings.Contains(status.Message(), "not read yet") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatalf("the plugin has not read the GPUNodes after %v", patience)
		}
	}
}
