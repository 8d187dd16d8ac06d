package integration

import (
	"net/http"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// allPlays names the environment variable with whose value "all" each play runs on a real API server too, in each mode.
const allPlays = "TANDEM_PLAYS"

// play is a test that knows a cluster by its API alone. It runs in a bubble, unless it needs a real API server. If the environment does
// not ask for all, few of them run on one.
type play struct {
	name string
	run  func(*testing.T, *gangCluster)
	// modes in which gangs are declared so that the play makes sense, nil for all.
	modes []podgroup.Source
	// real are the modes in which the play is worth an API server at each commit: it shows something that one in memory cannot.
	real []podgroup.Source
	// beta: the play has PodGroups in v1beta1, which later API servers do not have.
	beta bool
	// needs says why the play has to have a real API server, "" where it has not.
	needs string
}

// suite are plays on clusters that are alike.
type suite struct {
	name  string
	modes []podgroup.Source
	// gpus are the numbers of GPUs of the nodes.
	gpus []int
	// prepare starts what the plays need beside a scheduler, nil for nothing.
	prepare func(*testing.T, *gangCluster)
	plays   []play
}

var (
	labelOnly  = []podgroup.Source{podgroup.Label}
	podGroups  = []podgroup.Source{podgroup.XK8s, podgroup.Native}
	nativeOnly = []podgroup.Source{podgroup.Native}
	everyMode  = []podgroup.Source{podgroup.Label, podgroup.XK8s, podgroup.Native}
)

// suites are the plays in the order in which they run on one control plane: the last ones change it.
func suites() []suite {
	gang, preempt := slices.Repeat([]int{gpusPerNode}, gangNodes), []int{2, 8, 8, 4}
	return []suite{
		{"gangs", everyMode, gang, nil, gangPlays()},
		{"preemption", labelOnly, preempt, nil, preemptionPlays()},
		{"preemption by gangs", everyMode, preempt, nil, gangPreemptionPlays()},
		{"preemption of hundreds", labelOnly, slices.Repeat([]int{8}, 13), nil, []play{
			{name: "one eviction in the middle fails", run: hundreds},
		}},
		{"the example of preemption", labelOnly, gang, nil, []play{{name: "others make room for the urgent job", run: urgentExample}}},
		{"profiles", labelOnly, gang, nil, []play{{name: "a profile comes right after its pods", run: lateProfile}}},
		{"elastic", everyMode, gang, runElastic, elasticPlays()},
		{"ends of gangs", everyMode, gang, runReadyKubelets, endPlays()},
		{"changes", labelOnly, gang, nil, []play{
			{name: "a PodGroup is served later", run: servedLater, real: labelOnly},
		}},
	}
}

// in tells whether a play makes sense in a mode.
func (p play) in(s suite, mode gangMode) bool {
	return slices.Contains(s.modes, mode.source) && (p.modes == nil || slices.Contains(p.modes, mode.source))
}

// onServer tells whether a play runs on a real API server.
func (p play) onServer(s suite, mode gangMode) bool {
	return p.in(s, mode) && (everything() || slices.Contains(p.real, mode.source))
}

// everything tells whether the environment asks for all plays on real API servers.
func everything() bool { return os.Getenv(allPlays) == "all" }

// TestPlays runs the plays in bubbles, each on a cluster of its own. It runs before the tests that have control planes: the feature gates
// of a mode are those of this process.
func TestPlays(t *testing.T) {
	t.Run("GPUShare alone", func(t *testing.T) {
		setGates(t, gangModes()[0])
		for name, test := range shareTests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { test(t, newServer(gangModes()[0]).Config()) })
			})
		}
	})
	t.Run("fleets", func(t *testing.T) {
		for _, p := range fleetPlays() {
			if p.needs == "" {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { playFleetInBubble(t, p.run) })
				})
			}
		}
	})
	t.Run("lending", func(t *testing.T) {
		setGates(t, gangModes()[0])
		for _, p := range lendingPlays() {
			t.Run(p.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { playLendingInBubble(t, p.run) })
			})
		}
	})
	for _, mode := range append(gangModes(), stableMode()) {
		t.Run(mode.name, func(t *testing.T) {
			setGates(t, mode)
			for _, s := range suites() {
				for _, p := range s.plays {
					if p.needs != "" || p.beta && mode.stable || !p.in(s, mode) {
						continue
					}
					t.Run(s.name+"/"+p.name, func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) { startBubble(t, mode, s).playIn(t, p.run) })
					})
				}
			}
		})
	}
}

// startBubble returns a cluster in the bubble of a test.
func startBubble(t *testing.T, mode gangMode, s suite) *gangCluster {
	t.Helper()
	c := newBubble(t, mode, nil)
	t.Cleanup(func() { c.scheduler.Stop(0) })
	c.begin(t, s.gpus)
	if s.prepare != nil {
		s.prepare(t, c)
	}
	return c
}

// newBubble returns an API server in the bubble of a test, with the priority classes and nothing beside it.
func newBubble(t *testing.T, mode gangMode, prometheus http.Handler) *gangCluster {
	t.Helper()
	server := newServer(mode)
	c := &gangCluster{gangMode: mode, world: inBubble{server, prometheus}, api: server.Config()}
	c.connect(t)
	c.createClasses(t)
	return c
}

// TestPlaysOnServer runs the scheduler as it is built and configured for clusters, under the rights of its account, on one control plane for
// each way in which gangs can be declared.
func TestPlaysOnServer(t *testing.T) {
	t.Parallel()
	for _, mode := range gangModes() {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, mode, schedulerProgram(t))
			c.createClasses(t)
			for _, s := range suites() {
				plays := slices.DeleteFunc(slices.Clone(s.plays), func(p play) bool { return !p.onServer(s, mode) })
				if len(plays) == 0 {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					c.exchangeNodes(t, s.gpus)
					if s.prepare != nil {
						s.prepare(t, c)
					}
					for _, p := range plays {
						c.play(t, p.name, p.run)
					}
				})
			}
		})
	}
}

// exchangeNodes gives a cluster other nodes, and a scheduler that knows no others.
func (c *gangCluster) exchangeNodes(t *testing.T, gpus []int) {
	t.Helper()
	c.scheduler.Stop(0)
	for _, g := range c.gpus {
		must.OK(t, c.admin.CoreV1().Nodes().Delete(life(t), g.Name, metav1.DeleteOptions{}))
		must.OK(t, c.objects.Resource(v1alpha1.GPUNodes).Delete(life(t), g.Name, metav1.DeleteOptions{}))
	}
	c.createNodes(t, gpus)
	c.startScheduler(t)
}

// Priority classes of the tests, the first to go first.
const (
	low  = "test-low"
	mid  = "test-mid"
	high = "test-high"
	top  = "test-top"
	// modest is high without the right to evict.
	modest = "test-modest"
)

func (c *gangCluster) createClasses(t *testing.T) {
	t.Helper()
	for name, value := range map[string]int32{low: 10, mid: 100, high: 1000, modest: 1000, top: 2000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Value: value}
		if name == modest {
			class.PreemptionPolicy = new(v1.PreemptNever)
		}
		sandbox.CreatePriorityClassForTest(life(t), t, c.admin, class)
	}
}

// startPreemptionCluster returns a cluster of nodes with so many GPUs each, and with the priority classes.
func startPreemptionCluster(t *testing.T, mode gangMode, binary string, gpus ...int) *gangCluster {
	t.Helper()
	c := startCluster(t, mode, binary, gpus...)
	c.createClasses(t)
	return c
}

func gangPlays() []play {
	return []play{
		{name: "the examples run", run: examplesRun, beta: true, real: everyMode},
		{name: "a gang that does not fit waits whole", run: waitsWhole, real: podGroups},
		{name: "a gang beyond the cluster is refused at once", run: neverFits},
		{name: "autoscalers see who waits", run: seenByAutoscalers},
		{name: "two gangs of more than half", run: twoHalves},
		{name: "a member that is made again returns to its siblings", run: returnsNear},
		{name: "members arrive late", run: lateMembers},
		{name: "members of unlike priority", run: unlikePriorities},
		{name: "a hundred and fifty members", run: manyMembers, real: labelOnly},
		{name: "the scheduler is killed between two binds", run: killedScheduler, real: labelOnly},
		{name: "a gang that stays half-bound is released", run: releasedHalf},
		{name: "the PodGroup is deleted while its gang waits", run: deletedPodGroup, modes: podGroups, real: nativeOnly},
		{name: "two thousand members", run: twoThousandMembers, modes: labelOnly},
	}
}

// preemptionPlays have no kubelet: a victim is asked to leave and stays until its test ends it.
func preemptionPlays() []play {
	return []play{
		{name: "the victims are those of one GPU", run: oneGPU, real: labelOnly},
		{name: "eight GPUs are freed where they are together", run: eightTogether},
		{name: "a node is freed slot by slot", run: slotBySlot},
		{name: "victims are told for whom", run: toldForWhom},
		{name: "another plan spares the budget", run: sparesBudget},
		{name: "a budget that forbids all is the last resort", run: lastResort},
		{name: "required budgets are never violated", run: requiredBudget},
		{name: "a rush of lower priority does not take the room", run: rush},
		{name: "two preemptors do not share a victim", run: twoPreemptors},
		{name: "a higher priority takes the room of a preemptor", run: outranked},
		{name: "the room is let go when the preemptor is deleted", run: preemptorDeleted},
		{name: "who leaves anyway is waited for", run: leavesAnyway},
		{name: "the scheduler is killed while the victim leaves", run: restartedScheduler, real: labelOnly},
		{name: "the node is lost while the victim leaves", run: lostNode},
		{name: "preemptionPolicy Never", run: neverPreempts},
		{name: "what would not fit evicts nobody", run: neverInVain},
		{name: "a dry run evicts nobody", run: dryRun},
		{name: "pods without vGPUs", run: withoutVGPUs},
		{name: "a class that does not exist", run: classUnknown, real: labelOnly, needs: "its admission"},
		{name: "a class that is deleted", run: classDeleted},
		{name: "a minimum for a class that does not exist", run: minimumOfNoClass},
		{name: "a victim that never ends is given up", run: staysOn},
		{name: "evictions in a minute are bounded", run: bounded},
		{name: "more victims than the bound allows at once", run: beyondBound},
	}
}

func gangPreemptionPlays() []play {
	return []play{
		{name: "a gang goes whole for a gang", run: gangForGang, real: nativeOnly},
		{name: "surplus goes before a gang dies", run: surplusFirst},
		{name: "a gang of a higher priority stays", run: gangStays},
		{name: "the gang is deleted while its victims leave", run: gangDeleted},
	}
}
