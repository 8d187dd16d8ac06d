package fleets

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// gpuNode makes a node with a GPU of a model.
func (w *world) gpuNode(name, model string) {
	w.Helper()
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Status.Devices = []v1alpha1.GPUDevice{{ID: "GPU-" + name, Model: model}}
	must.OK(w.T, w.objects.Create(w.Context(), g))
}

// pod makes a pod, or changes it. One with elastic workers is a member of an elastic job.
func (w *world) pod(name, node, class string, priority int32, change ...func(*v1.Pod)) {
	w.Helper()
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": strings.TrimSuffix(name, "-0")}, Annotations: map[string]string{}},
		Spec:       v1.PodSpec{NodeName: node, PriorityClassName: class, Priority: &priority},
	}
	for _, f := range change {
		f(p)
	}
	must.OK(w.T, w.kube.Core().V1().Pods().Informer().GetIndexer().Add(p))
}

func elasticMember(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationElasticWorkers] = "1-4" }

func ended(p *v1.Pod) { p.Status.Phase = v1.PodFailed }

// A fleet that lends GPUs has them back at once only where its pods have a priority above that of the jobs.
func TestPrioritized(t *testing.T) {
	const jobs, none = "batch", ""
	for name, c := range map[string]struct {
		make func(*world)
		want string
		// says are parts of the message.
		says []string
	}{
		"no elastic job": {func(w *world) { w.pod("bert-a100-0", "n1", none, 0); w.pod("train", "n1", none, 5) }, "True LendsNothing", []string{"gpuModel and slots"}},
		"a job on another model": {func(w *world) { w.pod("bert-a100-0", "n1", none, 0); w.pod("train", "n2", none, 5, elasticMember) },
			"True LendsNothing", nil},
		"a job that has no node": {func(w *world) { w.pod("bert-a100-0", "n1", none, 0); w.pod("train", "", none, 5, elasticMember) }, "True LendsNothing", nil},
		"a job that has ended": {func(w *world) {
			w.pod("bert-a100-0", "n1", none, 0)
			w.pod("train", "n1", none, 5, elasticMember, ended)
		},
			"True LendsNothing", nil},
		"no pod of the fleet": {func(w *world) { w.pod("train", "n1", none, 0, elasticMember) }, "Unknown NoPods", []string{"has a pod"}},
		"its only pod has ended": {func(w *world) {
			w.pod("bert-a100-0", "n1", none, 0, ended)
			w.pod("train", "n1", none, 0, elasticMember)
		},
			"Unknown NoPods", nil},
		"above": {func(w *world) { w.pod("bert-a100-0", "n1", "serving", 8); w.pod("train", "n1", jobs, 7, elasticMember) }, "True Prioritized", nil},
		"equal, without classes": {func(w *world) { w.pod("bert-a100-0", "n1", none, 0); w.pod("train", "n1", none, 0, elasticMember) },
			"False PriorityNotAbove", []string{
				"variant a100: pod ns/bert-a100-0 has the priority 0, without a PriorityClass", "pod ns/train has the priority 0, without a PriorityClass",
				"of an elastic job on A100", "in the pod template of Deployment bert-a100 to a class with a value above 0",
			}},
		"below the highest job": {func(w *world) {
			w.pod("bert-a100-0", "n1", "serving", 8)
			w.pod("train", "n1", none, 0, elasticMember)
			w.pod("urgent", "n1", jobs, 9, elasticMember)
		}, "False PriorityNotAbove", []string{"of PriorityClass serving", "pod ns/urgent has the priority 9, of PriorityClass batch", "a value above 9"}},
		"one of two pods is not above": {func(w *world) {
			w.pod("bert-a100-0", "n1", "serving", 8)
			w.pod("old", "n1", none, 0, func(p *v1.Pod) { p.Labels["app"] = "bert-a100" })
			w.pod("train", "n1", none, 0, elasticMember)
		}, "False PriorityNotAbove", []string{"pod ns/old has the priority 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.change(func(s *v1alpha1.InferenceFleetSpec) {
				s.Variants[0].GPUModel, s.Variants[0].Slots = "A100", 5
				s.Variants[1].GPUModel = "T4" // without slots it lends nothing
			})
			w.gpuNode("n1", "A100")
			w.gpuNode("n2", "T4")
			c.make(w)
			w.arrive("20")
			w.pass()
			if got := w.condition(v1alpha1.ConditionPrioritized); got != c.want {
				t.Fatalf("the condition is %s, want %s: %s", got, c.want, w.message(v1alpha1.ConditionPrioritized))
			}
			for _, text := range c.says {
				if got := w.message(v1alpha1.ConditionPrioritized); !strings.Contains(got, text) {
					t.Errorf("the message is %q, want it to say %q", got, text)
				}
			}
		})
	}
}

// GPUNodes have hyphens in place of blanks: a variant whose model has a blank lends nothing.
func TestExampleNamesModelsAsGPUNodesDo(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "inference", "fleet.yaml"))
	must.OK(t, err)
	first, _, _ := strings.Cut(string(raw), "\n---\n")
	f := read[v1alpha1.InferenceFleet](t, first)
	for i := range f.Spec.Variants {
		if v := &f.Spec.Variants[i]; v.GPUModel == "" || strings.ContainsAny(v.GPUModel, " \t") {
			t.Errorf("variant %s has the gpuModel %q", v.Name, v.GPUModel)
		}
	}
}

// A fleet with many pods and a long selector uses up its comparisons: of further variants no pod is known.
func TestChecksOfPodsAreBounded(t *testing.T) {
	w := newWorld(t)
	for i := range 1000 {
		w.pod(fmt.Sprint("bert-", i), "n1", "", 0)
	}
	selector, err := labels.Parse(strings.Repeat("a!=b,", 149) + "a!=b")
	must.OK(t, err)
	v := &visit{pass: &pass{Controller: w.Controller}, object: w.fleet("bert"), targets: []*target{{selector: selector}, {selector: selector}}}
	first, err := v.lowest(0)
	must.OK(t, err)
	second, err := v.lowest(1)
	if first == nil || second != nil || err != nil {
		t.Errorf("within the bound %v, beyond it %v, %v", first, second, err)
	}
}
