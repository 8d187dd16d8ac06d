package gangs

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// naive lets members wait in Permit until as many are reserved as must run, and plans nothing: what gang plugins did before
// they planned.
type naive struct {
	handle fwk.Handle
	// refuses is what it never lets start: the pods whose names begin so.
	refuses string
}

const naiveName = "Naive"

// naiveKit returns the scheduler with the wrong plugin.
func naiveKit(refuses string) kit {
	return kit{gangs: naiveName, stock: true, make: func(_ context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return &naive{handle: h, refuses: refuses}, nil
	}}
}

// Name returns the plugin's name.
func (n *naive) Name() string { return naiveName }

// Permit waits for the other members.
func (n *naive) Permit(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if n.refuses != "" && strings.HasPrefix(pod.Name, n.refuses) {
		return fwk.NewStatus(fwk.Unschedulable, "never"), 0
	}
	least, err := strconv.Atoi(pod.Annotations[v1alpha1.AnnotationMinMembers])
	if err != nil {
		return nil, 0
	}
	var siblings []fwk.WaitingPod
	n.handle.IterateOverWaitingPods(func(w fwk.WaitingPod) {
		if w.GetPod().Labels[v1alpha1.LabelGang] == pod.Labels[v1alpha1.LabelGang] {
			siblings = append(siblings, w)
		}
	})
	if len(siblings)+1 < least {
		return fwk.NewStatus(fwk.Wait), 10 * time.Minute
	}
	for _, w := range siblings {
		w.Allow(naiveName)
	}
	return nil, 0
}

// TestChecksCanFail plays histories with schedulers that do it wrong, and wants each claim to be found broken.
func TestChecksCanFail(t *testing.T) {
	tests := []struct {
		name, want, history string
		kit                 kit
	}{
		{
			name: "without a plugin for gangs a gang is torn", want: "is torn", kit: kit{},
			history: "node n1 gpus=2\ngang g1 source=label members=4 slots=10",
		},
		{
			name: "members that wait without a plan are spread over racks", want: "2 domains", kit: naiveKit(""),
			history: "node n1 gpus=1 rack=r1\nnode n2 gpus=1 rack=r2\ngang g1 source=label members=2 slots=10 required=rack",
		},
		{
			name: "members that wait without a plan hold halves", want: "room for a half", kit: naiveKit(""),
			history: "node n1 gpus=4\ngang g1 source=label members=6 slots=10",
		},
		{
			name: "a bind that fails for ever leaves a part beyond the deadline", want: "longer than its deadline", kit: naiveKit(""),
			history: "node n1 gpus=4\nfault g1-1 kind=refuse count=-1\ngang g1 source=label members=2 slots=10\nclock for=70s\nclock for=30s",
		},
		{
			name: "a gang that nobody starts starves", want: "starved", kit: naiveKit("g1"),
			history: "node n1 gpus=2\npod p1 slots=10\ngang g1 source=label members=2 slots=10",
		},
		{
			name: "a pod that nobody starts starves", want: "starved", kit: naiveKit("p2"),
			history: "node n1 gpus=1\npod p1 slots=10\npod p2 slots=10",
		},
		{
			name: "a gang waits beside room while others run", want: "g1 waits beside room", kit: naiveKit("g1"),
			history: "node n1 gpus=4\npod p1 slots=10\ngang g1 source=label members=2 slots=10",
		},
		{
			name: "a pod waits beside room while others run", want: "p2 waits beside room", kit: naiveKit("p2"),
			history: "node n1 gpus=2\nnode n2 gpus=1\nnode n3 gpus=1\npod p1 slots=5\npod p2 slots=20\ndrain n1\nclock for=10s\nuncordon n1",
		},
		{
			name: "two gangs wait for what the other one has", want: "g1 waits for what g2 has", kit: naiveKit(""),
			history: "node n1 gpus=1\nnode n2 gpus=1\ngang g1 source=label members=2 slots=10 again=1\nnode n3 gpus=1\nnode n4 gpus=1\n" +
				"gang g2 source=label members=2 slots=10 again=1\ndrain n2\ndrain n4\nclock for=10s",
		},
		{
			name: "members of unlike priority are bound", want: "malformed", kit: naiveKit(""),
			history: "node n1 gpus=1\npod p1 slots=10 runs=5s\ngang g1 source=label members=2 slots=5 uneven=1\nclock for=10s",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			history, err := parse(test.history)
			if err != nil {
				t.Fatal(err)
			}
			violation, log := outcome(t, test.kit, history)
			if !strings.Contains(violation, test.want) {
				t.Errorf("found %q, want %q\n%s", violation, test.want, strings.Join(log, "\n"))
			}
		})
	}
}
