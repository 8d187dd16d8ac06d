package gangs

import (
	"context"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// wrongControl returns the kit with a controller that does the same in each of its passes, and is told their number.
func wrongControl(act func(c *control, pass int)) kit {
	k := elastic(false)
	k.control = func(w *world) error {
		ctx, end := context.WithCancel(w.ctx)
		c := &control{world: w, api: w.api, end: end}
		go func() {
			for pass := 0; ; pass++ {
				select {
				case <-ctx.Done():
					return
				case <-time.After(passEvery):
				}
				act(c, pass)
			}
		}()
		return nil
	}
	return k
}

// aim writes the target of the gang g1.
func (c *control) aim(workers int32) {
	target := c.api.targetOf("g1")
	objects := objectClient{control: c}
	if target == nil {
		target = &v1alpha1.ElasticTarget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "g1"}}
		target.Spec = v1alpha1.ElasticTargetSpec{Source: "label", Min: 1, Max: 4, Workers: workers}
		_ = objects.Create(c.world.ctx, target)
		return
	}
	target.Spec.Workers = workers
	_ = objects.Update(c.world.ctx, target)
}

// evict evicts a pod.
func (c *control) evict(name string) {
	pod := c.api.pod(name)
	if pod == nil || pod.Spec.NodeName == "" {
		return
	}
	client := controlClient{clientset{c.api.core, c.api}, c}
	_ = client.PolicyV1().Evictions(namespace).Evict(c.world.ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: namespace, Name: name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}

// TestElasticChecksCanFail plays histories with controllers and a scheduler that do it wrong, and wants each claim to be found
// broken.
func TestElasticChecksCanFail(t *testing.T) {
	ignorant := naiveKit("")
	ignorant.elastic, ignorant.control = true, func(*world) error { return nil }
	tests := []struct {
		name, want string
		kit        kit
	}{
		{"a scheduler that knows no targets", "is bound, and the target of its gang allows members below 1", ignorant},
		{"a controller that does nothing", "gang g1 has no target", wrongControl(func(*control, int) {})},
		{"nobody leaves", "gang g1 runs with 4 members, and its target is 2", wrongControl(func(c *control, pass int) {
			if pass < 3 {
				c.aim(4)
			} else {
				c.aim(2)
			}
		})},
		{"nothing is told of the target", "the status of its target says 0", wrongControl(func(c *control, _ int) { c.aim(4) })},
		{"the first member leaves", "evicts pod g1-0 although only the last 0 of 4 members are too many", wrongControl(func(c *control, pass int) {
			if c.aim(4); pass > 1 {
				c.evict("g1-0")
			}
		})},
		{"more leave than are too many", "evicts pod g1-0 although only the last 3 of 4 members are too many", wrongControl(func(c *control, pass int) {
			if c.aim(4); pass > 1 {
				c.aim(1)
				c.evict("g1-0")
			}
		})},
		{"a member leaves without a notice", "evicts pod g1-3 without a notice", wrongControl(func(c *control, pass int) {
			if c.aim(4); pass > 1 {
				c.aim(3)
				c.evict("g1-3")
			}
		})},
		{"pods of no gang leave", "evicts pod p1, which is of no elastic gang", wrongControl(func(c *control, _ int) { c.evict("p1") })},
		{"the target is another one in each pass", "the sizes of gangs still change", wrongControl(func(c *control, pass int) { c.aim(int32(1 + pass%2)) })},
	}
	history, err := parse("node n1 gpus=4\npod p1 slots=1\ngang g1 source=label members=4 min=1 elastic=1-4 slots=5\nclock for=70s")
	must.OK(t, err)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if violation, log := outcome(t, test.kit, history); !strings.Contains(violation, test.want) {
				t.Errorf("found %q, want %q\n%s", violation, test.want, strings.Join(log, "\n"))
			}
		})
	}
}

// TestHandOverOfLateRequests checks the stand-in for the API server: a request that a process of the controller began happens
// although the process died, and none that it makes afterwards.
func TestHandOverOfLateRequests(t *testing.T) {
	k := wrongControl(func(c *control, pass int) {
		switch pass {
		case 0:
			c.api.order(fault{what: controlFault, kind: "late", left: 1})
			c.aim(3)
		case 1:
			c.die()
			c.aim(2)
		}
	})
	history, err := parse("node n1 gpus=4\ngang g1 source=label members=4 min=1 elastic=1-4 slots=5 &\nclock for=30s")
	must.OK(t, err)
	_, log := outcome(t, k, history)
	if text := strings.Join(log, "\n"); !strings.Contains(text, "target of g1: 3") || strings.Contains(text, "target of g1: 2") {
		t.Errorf("want a target of 3 and none of 2:\n%s", text)
	}
}
