package notebooks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tandem-gpu/tandem/test/must"
)

// BenchmarkExtremes is what the controller does for notebooks at the bounds of what is legal: to read the longest answer of a server, to find all notebooks
// of a cluster beside workloads with selectors of an object's full size, and beside as many autoscalers.
func BenchmarkExtremes(b *testing.B) {
	b.Run("notebook/answer-of-1-MiB", func(b *testing.B) {
		one := `{"execution_state":"x","last_activity":"2026-01-31T12:00:00Z"},`
		answer := "[" + strings.TrimSuffix(strings.Repeat(one, (mostAnswer-2)/len(one)), ",") + "]"
		for b.Loop() {
			var kernels []kernel
			must.OK(b, decode(strings.NewReader(answer), &kernels))
			for _, k := range kernels {
				_, err := time.Parse(time.RFC3339Nano, k.Activity)
				must.OK(b, err)
			}
		}
	})
	for _, bc := range []struct {
		name                                string
		workloads, expressions, autoscalers int
	}{
		{"notebooks/5000-workloads", 5000, 0, 0},
		{"notebooks/5000-workloads/5000-autoscalers", 5000, 0, 5000},
		{"notebooks/100-workloads/10000-expressions", 100, 10_000, 0},
	} {
		b.Run(bc.name, func(b *testing.B) {
			factory := informers.NewSharedInformerFactory(kubefake.NewClientset(), 0)
			c, err := New(Options{Informers: factory, Kube: kubefake.NewClientset(), GPUNodes: fake.NewClientBuilder().Build(), Recorder: events.NewFakeRecorder(10_000),
				Every: time.Minute, Notice: 10 * time.Minute, Now: func() time.Time { return noon }})
			must.OK(b, err)
			selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "nb"}}
			for i := range bc.expressions {
				selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{
					Key: fmt.Sprintf("key-%d", i), Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"},
				})
			}
			for i := range bc.workloads {
				s := notebookSet("8888", "60m")
				s.Name, s.UID, s.Spec.Selector = fmt.Sprintf("nb-%d", i), types.UID(fmt.Sprint(i)), selector
				must.OK(b, factory.Apps().V1().StatefulSets().Informer().GetIndexer().Add(s))
			}
			for i := range bc.autoscalers {
				must.OK(b, factory.Autoscaling().V2().HorizontalPodAutoscalers().Informer().GetIndexer().Add(&autoscalingv2.HorizontalPodAutoscaler{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("h-", i)},
					Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "StatefulSet", Name: "other"}},
				}))
			}
			for b.Loop() {
				list, invalid, err := c.visits()
				if err != nil || len(list)+invalid != bc.workloads {
					b.Fatal(err, len(list), invalid)
				}
			}
		})
	}
}
