package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

const (
	// pods of the test, and those among them whose first bind takes effect after the scheduler has given it up.
	podCount     = 500
	tooLateCount = 20

	bindTimeout = 2 * time.Second
	// patience is what only a hang reaches, on whatever machine.
	patience = 15 * time.Minute
)

// ownProcess is the environment variable of a process that runs one test.
const ownProcess = "TANDEM_TEST_OWN_PROCESS"

// inOwnProcess runs a test that reads metrics: the first scheduler of a process serves its metrics, and the bubbles of this one have schedulers.
func inOwnProcess(t *testing.T, test func(*testing.T)) {
	t.Helper()
	if os.Getenv(ownProcess) != "" {
		test(t)
		return
	}
	self, err := os.Executable()
	must.OK(t, err)
	name := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), self, "-test.run="+name, "-test.v", "-test.timeout=0")
	cmd.Env = append(os.Environ(), ownProcess+"=yes")
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "--- PASS") {
		t.Errorf("%v:\n%s", err, output)
	}
}

// TestScheduler plays the tests one after the other.
func TestScheduler(t *testing.T) {
	t.Parallel()
	t.Run("ambiguous binds neither lose nor double", func(t *testing.T) {
		inOwnProcess(t, func(t *testing.T) {
			if everything() {
				ambiguousBinds(t, startShare(t))
				return
			}
			setGates(t, gangModes()[0])
			synctest.Test(t, func(t *testing.T) { ambiguousBinds(t, newServer(gangModes()[0]).Config()) })
		})
	})
	for name, test := range shareTests {
		if !everything() {
			break
		}
		t.Run(name, func(t *testing.T) { test(t, startShare(t)) })
	}
}

// startShare starts a control plane for GPUShare alone.
func startShare(t *testing.T) *rest.Config {
	t.Helper()
	plane := sandbox.StartForTest(t, sandbox.Options{})
	must.OK(t, plane.InstallCRDs(t.Context()))
	return plane.Admin()
}

// shareTests are tests of GPUShare alone, in the stock scheduler. They run in bubbles, and on real API servers where the environment asks for all.
var shareTests = map[string]func(*testing.T, *rest.Config){
	"rates on unlike GPUs":        ratesOnUnlikeGPUs,
	"promises among neighbours":   promisesAmongNeighbours,
	"a kubelet that refuses pods": refusedByAKubelet,
}

// An API server that answers binds with lies: 500 pods on 1,120 slots, which they fill to nine tenths.
func ambiguousBinds(t *testing.T, api *rest.Config) {
	admin := clientFor(t, api)
	nodes := make([]*v1alpha1.GPUNode, 14)
	for i := range nodes {
		nodes[i] = fakecluster.GPUNode(fmt.Sprintf("n%02d", i), 8)
		createNode(t, api, nodes[i])
	}
	history := watchBinds(t, admin)
	faulty := newFaultyServer(t, api)
	startScheduler(t, faulty.config)

	for i := range podCount {
		name := fmt.Sprintf("pod-%03d", i)
		if i < tooLateCount {
			name = fmt.Sprintf("too-late-%03d", i)
		}
		createPod(t, admin, name, i%3+1) // 167 × 1 + 167 × 2 + 166 × 3 = 999 of 1,120 slots
	}
	bound := awaitAllBound(t, admin)
	faulty.pending.Wait()

	checkLedger(t, bound, nodes)
	history.check(t)
	faulty.check(t)
	awaitNoReservations(t)
	if unknown := metric(t, "tandem_scheduler_binds_total")["unknown"]; unknown < tooLateCount {
		t.Errorf("%v binds ended unknown, want those of the %d pods whose first bind came too late", unknown, tooLateCount)
	}
}

func awaitAllBound(t *testing.T, client kubernetes.Interface) []v1.Pod {
	t.Helper()
	var all []v1.Pod
	poll(t, "all pods are bound", func(ctx context.Context) (bool, string) {
		list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		waiting := 0
		for _, p := range list.Items {
			if p.Spec.NodeName == "" {
				waiting++
			}
		}
		all = list.Items
		return len(all) == podCount && waiting == 0, fmt.Sprintf("%d of %d pods wait", waiting, len(all))
	})
	return all
}

// checkLedger adds all shares up: none is booked twice.
func checkLedger(t *testing.T, pods []v1.Pod, gpuNodes []*v1alpha1.GPUNode) {
	t.Helper()
	var nodes []*vgpu.Node
	for _, g := range gpuNodes {
		devices, err := kube.Devices(g)
		must.OK(t, err)
		n, err := vgpu.NewNode(g.Name, devices)
		must.OK(t, err)
		nodes = append(nodes, n)
	}
	ledger, err := vgpu.NewCluster(nodes...)
	must.OK(t, err)
	for i := range pods {
		a, err := kube.AssignmentOf(&pods[i])
		if err == nil {
			err = ledger.Add(a)
		}
		if err != nil {
			t.Errorf("pod %s: %v", pods[i].Name, err)
		}
	}
	if err := ledger.Check(); err != nil {
		t.Error(err)
	}
}

// binds records every place that a pod was ever seen at.
type binds struct {
	mu     sync.Mutex
	places map[types.UID]map[string]bool
}

func watchBinds(t *testing.T, client kubernetes.Interface) *binds {
	t.Helper()
	b := &binds{places: map[types.UID]map[string]bool{}}
	informer := podInformer(client)
	see := func(object any) {
		p, ok := object.(*v1.Pod)
		if !ok || p.Spec.NodeName == "" {
			return
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.places[p.UID] == nil {
			b.places[p.UID] = map[string]bool{}
		}
		b.places[p.UID][p.Spec.NodeName+" "+p.Annotations[v1alpha1.AnnotationAssignment]] = true
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, updated any) { see(updated) },
	}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the pods cannot be watched")
	}
	return b
}

func (b *binds) check(t *testing.T) {
	t.Helper()
	poll(t, "the watch saw every bind", func(context.Context) (bool, string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.places) == podCount, fmt.Sprintf("it saw %d", len(b.places))
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	for uid, places := range b.places {
		if len(places) != 1 {
			t.Errorf("pod %s was seen at %d places: %v", uid, len(places), places)
		}
	}
}

// check fails where the API server accepted two binds of one pod, and where a kind of fault never happened.
func (f *faultyServer) check(t *testing.T) {
	t.Helper()
	poll(t, "all binds are counted", func(context.Context) (bool, string) { // a pod is bound before the server reads the answer
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.answered() >= podCount, fmt.Sprintf("those of %d pods are", f.answered())
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.answered() != podCount {
		t.Errorf("the API server accepted binds of %d pods, and did not tell of %v, want %d", len(f.accepted), f.unknown, podCount)
	}
	for path, count := range f.accepted {
		if count != 1 {
			t.Errorf("the API server accepted %d binds at %s", count, path)
		}
	}
	for _, kind := range append(faults, tooLate) {
		if f.counts[kind] < tooLateCount {
			t.Errorf("only %d requests were %s", f.counts[kind], kind)
		}
	}
	t.Logf("requests by fault: %v", f.counts)
}

// answered counts the pods of which the API server accepted a bind, or may have. The caller holds the mutex.
func (f *faultyServer) answered() int {
	n := len(f.accepted)
	for path := range f.unknown {
		if f.accepted[path] == 0 {
			n++
		}
	}
	return n
}

// awaitNoReservations fails where the plugin still keeps devices in memory for a pod that is long bound.
func awaitNoReservations(t *testing.T) {
	t.Helper()
	poll(t, "no pod is reserved or unresolved", func(context.Context) (bool, string) {
		kept := metric(t, "tandem_scheduler_reservations")
		return len(kept) > 0 && kept["reserved"] == 0 && kept["unresolved"] == 0, fmt.Sprint(kept)
	})
}

// metric returns the values of a metric by its only label, as the scheduler serves them.
func metric(t *testing.T, name string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	must.OK(t, err)
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			values[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return values
}
