package gpupreempt

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// cpu has a pod ask for cores of its host.
func cpu(p *v1.Pod, cores string) *v1.Pod {
	p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse(cores)
	return p
}

// onPort has a pod use a port of its host.
func onPort(p *v1.Pod, port int32) *v1.Pod {
	p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port, Protocol: v1.ProtocolTCP}}
	return p
}

// Pods without vGPUs are evicted where the host has too little for one with.
func TestEvictsForTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.createBound(cpu(pod("gpu", 10, 0), "1"), cpu(pod("large", 0, 0), "40"), cpu(pod("small", 0, 0), "20"))
		c.Create(cpu(pod("high", 10, 100), "20"))
		victims := c.awaitVictims(1)
		c.Remove(victims...)
		c.AwaitBound("high", 1)
		if len(victims) != 1 || victims[0] == "gpu" {
			t.Errorf("%v are evicted", victims)
		}
	})
}

// A pod without vGPUs evicts as in the stock scheduler, with words for its victims.
func TestPlainPod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(cpu(pod("low", 0, 0), "60"))
		c.Create(cpu(pod("high", 0, 100), "60"))
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		e := c.awaitEvent("low", "Preempted")
		if want := "Preempted by pod default/high (priority 100) on node n1"; !strings.Contains(e.Note, want) {
			t.Errorf("the event of the victim is %q, want %q in it", e.Note, want)
		}
		c.Remove("low")
		c.AwaitBound("high", 1)
	})
}

// The guards hold for pods without vGPUs too, unless they are parts of the cluster itself.
func TestPlainPodAndGuards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.Protected.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"keep": "yes"}}
		c.start()
		c.createBound(labelled(cpu(pod("kept", 10, 0), "60"), "keep", "yes"))
		c.Create(cpu(pod("high", 0, 100), "60"))
		c.AwaitMessage("high", "preemption: ")
		expect(t, "victims", nil, c.victims())
		c.Create(cpu(pod("critical", 0, systemCritical), "60"))
		expect(t, "victims", []string{"kept"}, c.awaitVictims(1))
	})
}

// A pod without vGPUs evicts members of a gang only as long as enough run on.
func TestPlainPodAndGangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3)
		gang := members("gang", 3, 2, 10)
		for _, m := range gang {
			cpu(m, "20")
		}
		c.Create(gang...)
		c.AwaitBound("gang", 3)
		c.Create(cpu(pod("one", 0, 100), "20")) // of three here it would be one, but which of them is the in-tree plugin's choice
		c.AwaitMessage("one", "preemption: ")
		expect(t, "victims", nil, c.victims())
		c.Remove("gang-2", "one")
		c.createBound(cpu(pod("low", 0, 0), "20"))
		c.Create(cpu(pod("two", 0, 100), "20"))
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
	})
}

// While a member that its gang can do without leaves, no other pod is evicted for a pod without vGPUs.
func TestPlainPodWaitsForItsVictim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1, 0)
		gang := members("gang", 3, 2, 10)
		for _, m := range gang {
			cpu(m, "60")
		}
		c.Create(gang...)
		c.AwaitBound("gang", 3)
		c.createBound(cpu(pod("low", 0, 1), "60"))
		c.Create(cpu(pod("high", 0, 100), "60"))
		victims := c.awaitVictims(1)
		if victims[0] == "low" {
			t.Fatalf("%v are evicted, a member of the gang has a lower priority", victims)
		}
		// Touched nodes have it tried again, unless it came back to the queue before the eviction was sent: then it waits for the end
		// of a pod alone.
		touches := 0
		c.Await("high is tried again or was not to be", func() bool {
			touches++
			c.changeNode("n4", func(n *v1.Node) { n.Labels["touched"] = fmt.Sprint(touches) })
			return touches == 50 || strings.Contains(fakecluster.Message(c.Pod("high")), "terminating pod on the nominated node")
		})
		expect(t, "victims", victims, c.victims())
		c.Remove(victims...)
		c.AwaitBound("high", 1)
		expect(t, "victims", victims, c.victims())
	})
}

// Budgets that must be kept are kept for pods without vGPUs too.
func TestPlainPodAndBudgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.PodDisruptionBudgets = config.BudgetsRequired
		c.budget("kept", 1)
		c.start()
		for i, app := range []string{"kept", "kept", "free"} { // two on n1, of which one may go, and one on n2
			p := labelled(cpu(pod(fmt.Sprintf("low-%d", i), 0, int32(i)), []string{"30", "30", "60"}[i]), "app", app)
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: []string{"n1", "n1", "n2"}[i]}
			c.createBound(p)
		}
		c.Create(cpu(pod("high", 0, 100), "60"))
		expect(t, "victims", []string{"low-2"}, c.awaitVictims(1))
		c.Create(cpu(pod("next", 0, 100), "30"))
		c.AwaitMessage("next", "No preemption victims found")
		expect(t, "victims", []string{"low-2"}, c.victims())
		c.Remove("low-1")
		c.AwaitBound("next", 1)
		c.Create(cpu(pod("last", 0, 100), "30")) // of the one that is left, one may go
		expect(t, "victims", []string{"low-0", "low-2"}, c.awaitVictims(2))
	})
}

func TestPlainPodInADryRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.Mode = config.PreemptionDryRun
		c.start()
		c.createBound(cpu(pod("low", 0, 0), "60"))
		c.Create(cpu(pod("high", 0, 100), "60"))
		c.AwaitMessage("high", "(dry run) on node n1 it would evict 1 pod: default/low")
		c.Create(cpu(pod("equal", 0, 0), "60"))
		c.AwaitMessage("equal", "(dry run) no node where evictions help")
		expect(t, "victims", nil, c.victims())
		expect(t, "nominated node", "", c.Pod("high").Status.NominatedNodeName)
	})
}

// Evictions for pods without vGPUs use up the allowance too.
func TestPlainPodAndAllowance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.EvictionsPerMinute = 1
		c.start()
		c.createBound(cpu(pod("low-0", 0, 0), "60"), cpu(pod("low-1", 10, 0), "60"))
		c.Create(cpu(pod("high-0", 0, 100), "60"))
		c.awaitVictims(1)
		c.Create(cpu(pod("high-1", 0, 100), "60"))
		c.AwaitMessage("high-1", "evicts 1 pods in a minute at most, the next in ")
		c.Clock.Pass(step * 60)
		expect(t, "victims", []string{"low-0", "low-1"}, c.awaitVictims(2))
	})
}

// A node where another plugin refuses the pod, whichever pods leave, is passed over, though its pods cost less.
func TestOtherPluginsAreAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(pod("cheap", 10, 0))
		c.Create(onPort(pod("port", 0, 200), 80))
		c.AwaitBound("port", 1)
		if c.Pod("port").Spec.NodeName != c.Pod("cheap").Spec.NodeName {
			c.Remove("port")
			other := pod("port-2", 0, 200)
			other.Spec.NodeSelector = map[string]string{v1.LabelHostname: c.Pod("cheap").Spec.NodeName}
			c.createBound(onPort(other, 80))
		}
		c.createBound(pod("dear", 10, 50))
		c.Create(onPort(pod("high", 10, 100), 80))
		expect(t, "victims", []string{"dear"}, c.awaitVictims(1))
		c.Remove("dear")
		c.AwaitBound("high", 1)
	})
}

// If something else than room is in the way, a port of the host say, the pod that has it goes, and no other.
func TestReprieve(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.createBound(onPort(pod("port", 0, 0), 80), pod("other", 10, 0), pod("third", 0, 0))
		c.Create(onPort(pod("high", 10, 100), 80))
		expect(t, "victims", []string{"port"}, c.awaitVictims(1))
		c.Remove("port")
		c.AwaitBound("high", 1)
	})
}

// If the pod that has the port ends soon by itself, the preemptor waits for it, also if nobody else is on its node.
func TestReprieveWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		ends, deadline := onPort(pod("ends", 0, 50), 80), int64(25)
		ends.Spec.ActiveDeadlineSeconds = &deadline
		c.createBound(ends, onPort(pod("low", 0, 5), 80))
		c.Create(onPort(pod("high", 10, 100), 80))
		c.says("high", "waits for default/ends to leave")
		expect(t, "victims", nil, c.victims())
		c.Remove("ends")
		c.AwaitBound("high", 1)
		expect(t, "victims", nil, c.victims())
	})
}

// Room and a port are in the way: the pods that have either are evicted, and no other.
func TestReprieveSparesUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		c.createBound(onPort(pod("port", 0, 5), 80), pod("cheap", 10, 1), pod("dear", 10, 2), pod("third", 0, 0))
		c.Create(onPort(pod("high", 10, 100), 80))
		expect(t, "victims", []string{"cheap", "port"}, c.awaitVictims(2))
		c.Remove("port", "cheap")
		c.AwaitBound("high", 1)
	})
}

// A protected pod keeps its port: the preemptor's message says that other plugins refuse it.
func TestReprieveKeepsGuards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.Create(in(metav1.NamespaceSystem, onPort(pod("port", 0, 0), 80)))
		c.AwaitBound("port", 1)
		c.createBound(pod("low", 10, 0))
		c.Create(onPort(pod("high", 10, 100), 80))
		c.AwaitMessage("high", "other plugins refuse the nodes where room could be made: node(s) didn't have free ports")
		expect(t, "victims", nil, c.victims())
	})
}

// A budget that must be kept keeps a pod with its port; where another node has a cheaper one, that goes.
func TestReprieveKeepsBudgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1, 1)
		c.args.PodDisruptionBudgets = config.BudgetsRequired
		c.budget("port-0", 0)
		c.start()
		for i, priority := range []int32{0, 5, 7} { // on n1, n2 and n3
			p := onPort(pod(fmt.Sprintf("port-%d", i), 0, priority), 80)
			p.Spec.NodeSelector = map[string]string{v1.LabelHostname: fmt.Sprintf("n%d", i+1)}
			c.createBound(p)
		}
		c.Create(onPort(pod("high", 10, 100), 80))
		expect(t, "victims", []string{"port-1"}, c.awaitVictims(1))
		c.Remove("port-1")
		c.AwaitBound("high", 1)
	})
}

func TestReprieveKeepsTheOnlyBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.args.PodDisruptionBudgets = config.BudgetsRequired
		c.budget("port", 0)
		c.start()
		c.createBound(onPort(pod("port", 0, 0), 80))
		c.Create(onPort(pod("high", 10, 100), 80))
		c.AwaitMessage("high", "other plugins refuse the nodes where room could be made")
		expect(t, "victims", nil, c.victims())
	})
}
