package activator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// extremeNotebook is a StatefulSet with a selector of so many expressions, each of which all pods meet.
func extremeNotebook(name string, expressions int) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: map[string]string{
			v1alpha1.AnnotationNotebook: v1alpha1.NotebookPark, v1alpha1.AnnotationNotebookPath: "/ns/" + name,
		}},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nb"}}},
	}
	for i := range expressions {
		s.Spec.Selector.MatchExpressions = append(s.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: fmt.Sprintf("key-%d", i), Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"},
		})
	}
	return s
}

// extremeActivator knows so many parked notebooks, one whose selector has so many expressions, and so many pods in its namespace.
func extremeActivator(tb testing.TB, notebooks, expressions, pods int) *Activator {
	factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
	a, err := New(Options{Informers: factory, Kube: kubefake.NewClientset(), Recorder: events.NewFakeRecorder(10), HoldFor: time.Minute, MostHeld: 16, MostConnections: 80})
	must.OK(tb, err)
	sets, all := factory.Apps().V1().StatefulSets().Informer().GetIndexer(), factory.Core().V1().Pods().Informer().GetIndexer()
	for i := range notebooks {
		s := extremeNotebook(fmt.Sprintf("nb-%d", i), 0)
		s.Spec.Replicas = new(int32(0))
		must.OK(tb, sets.Add(s))
	}
	must.OK(tb, sets.Add(extremeNotebook("nb", expressions)))
	for i := range pods {
		must.OK(tb, all.Add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("p-%d", i), Labels: map[string]string{"app": "nb"}}}))
	}
	return a
}

// A workload whose selector is longer than a notebook needs is none: each request would compare it with all pods of its namespace.
func TestLongSelectors(t *testing.T) {
	a := extremeActivator(t, 0, parking.MaxSelector, 1)
	if _, refused := a.find("/ns/nb/"); refused == nil {
		t.Error("a selector of a label and 16 expressions is followed")
	}
	a = extremeActivator(t, 0, parking.MaxSelector/2-1, 1)
	if n, refused := a.find("/ns/nb/"); refused != nil || len(n.Annotations) == 0 {
		t.Errorf("a selector of a label and 7 expressions with a value each: %+v", refused)
	}
}

// BenchmarkExtremes is what one look of a request for a notebook costs: to judge the longest path, to find the notebook among all that are parked, and to
// find its pod among those of its namespace.
func BenchmarkExtremes(b *testing.B) {
	const pods = 10_000
	run := func(name, path string, found bool, a *Activator) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				n, refused := a.find(path)
				if (refused == nil) != found {
					b.Fatal(refused)
				}
				if found {
					a.target(n)
				}
			}
		})
	}
	parked := extremeActivator(b, 20_000, 0, 0)
	run("request/20000-parked-notebooks", "/ns/nb-7/", true, parked)
	run("request/64-KiB-of-escapes", "/ns/nb-7/"+strings.Repeat("%252561", 9000), false, parked)
	run("request/64-KiB-of-segments", "/ns/nb-7/"+strings.Repeat("a/", 32_000)+"a", true, parked)
	run(fmt.Sprintf("request/longest-selector/%d-pods", pods), "/ns/nb/", true, extremeActivator(b, 0, parking.MaxSelector/2-1, pods))
	run(fmt.Sprintf("request/10000-expressions/%d-pods", pods), "/ns/nb/", false, extremeActivator(b, 0, 10_000, pods))
}
