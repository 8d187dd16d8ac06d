package gpupreempt

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// asked returns a question of a preemptor of priority 10 about candidates on n1, unless they say otherwise. Each is named by its
// place in the list: a, b, c, …
func asked(gangs []preemption.Gang, budgets []preemption.Budget, pods ...preemption.Pod) *question {
	for i := range pods {
		pods[i].Name = string(rune('a' + i))
		if pods[i].Node == "" {
			pods[i].Node = "n1"
		}
	}
	return &question{priority: 10, from: &preemption.Candidates{Pods: pods, Gangs: gangs, Budgets: budgets}}
}

func single(priority int32) preemption.Pod { return preemption.Pod{Priority: priority, Gang: -1} }

func member(gang int, priority int32) preemption.Pod {
	return preemption.Pod{Priority: priority, Gang: gang}
}

func on(node string, p preemption.Pod) preemption.Pod {
	p.Node = node
	return p
}

func guarded(p preemption.Pod) preemption.Pod {
	p.Guard = preemption.Protected
	return p
}

func leaves(p preemption.Pod) preemption.Pod {
	p.Leaving = true
	return p
}

func lost(p preemption.Pod, work int64) preemption.Pod {
	p.Lost = work
	return p
}

func TestUnitsOf(t *testing.T) {
	t.Parallel()
	gang := func(least int) []preemption.Gang { return []preemption.Gang{{Name: "g", MinCount: least}} }
	one := func(kind preemption.Kind, name string, pods ...int) preemption.Unit {
		return preemption.Unit{Kind: kind, Name: name, Pods: pods}
	}
	for name, x := range map[string]struct {
		q     *question
		units []preemption.Unit
		waits []int
	}{
		"single pods below": {
			asked(nil, nil, single(9), single(10), guarded(single(0)), leaves(single(20)), on("n2", single(0))),
			[]preemption.Unit{one(preemption.Single, "a", 0)}, []int{3},
		},
		"a gang goes whole, wherever it is": {
			asked(gang(3), nil, member(0, 0), member(0, 0), on("n2", member(0, 0))), []preemption.Unit{one(preemption.Whole, "g", 0, 1, 2)}, nil,
		},
		"as many as it can do without go one by one": {
			asked(gang(1), nil, member(0, 0), member(0, 0), on("n2", member(0, 0))),
			[]preemption.Unit{one(preemption.Surplus, "a", 0), one(preemption.Surplus, "b", 1)}, nil,
		},
		"more than it can do without: all": {
			asked(gang(2), nil, member(0, 0), member(0, 0), on("n2", member(0, 0))), []preemption.Unit{one(preemption.Whole, "g", 0, 1, 2)}, nil,
		},
		"it cannot go whole: the cheapest that it can do without": {
			asked(gang(2), nil, lost(member(0, 0), 7), lost(member(0, 0), 5), on("n2", member(0, 10))), []preemption.Unit{one(preemption.Surplus, "b", 1)}, nil,
		},
		"it can do without no member": {
			asked(gang(3), nil, member(0, 0), member(0, 0), on("n2", guarded(member(0, 0)))), nil, nil,
		},
		"those that leave run no longer": {
			asked(gang(2), nil, member(0, 0), member(0, 0), on("n2", leaves(member(0, 0)))), []preemption.Unit{one(preemption.Whole, "g", 0, 1)}, nil,
		},
	} {
		units, waits := x.q.unitsOn("n1")
		if diff := cmp.Diff(x.units, units); diff != "" {
			t.Errorf("%s: units (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(x.waits, waits); diff != "" {
			t.Errorf("%s: leave (-want +got):\n%s", name, diff)
		}
	}
}
