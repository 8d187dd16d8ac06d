package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// Two models: an A100 of 10 slots, on which bert reaches 300 for 3 an hour, and a T4 of 4 slots, on which it reaches 100
// for a half.
func ratesOnUnlikeGPUs(t *testing.T, api *rest.Config) {
	admin := clientFor(t, api)
	nodes := []*v1alpha1.GPUNode{fakecluster.GPUNode("big", 1), fakecluster.GPUNode("small", 1)}
	nodes[1].Status.Devices[0].Model, nodes[1].Status.Devices[0].Slots = "T4", 4
	nodes[1].Status.Devices[0].Memory = resource.MustParse("16Gi")
	for _, n := range nodes {
		createNode(t, api, n)
	}
	startScheduler(t, api, func(args *config.GPUShareArgs) {
		args.ModelCosts = []config.ModelCost{{Model: "A100", Cost: resource.MustParse("3")}, {Model: "T4", Cost: resource.MustParse("0.5")}}
		args.Throughputs = []config.Throughput{
			{Profile: "bert", Model: "A100", Share: 100, Rate: resource.MustParse("300")},
			{Profile: "bert", Model: "T4", Share: 100, Rate: resource.MustParse("100")},
		}
	})

	// Each pod asks for one slot. 30 takes 2 of 4 slots of the T4 for 0.25, or 1 of 10 of the A100 for 0.30.
	for _, step := range []struct{ name, rate, models, want string }{
		{"first", "30", "", "2 of 4 slots of T4, asked for 1"},
		{"second", "30", "", "2 of 4 slots of T4, asked for 1"},
		{"the-t4-is-full", "30", "", "1 of 10 slots of A100"},
		{"the-t4-cannot", "150", "", "5 of 10 slots of A100, asked for 1"},
		{"names-its-model", "40", "A100", "2 of 10 slots of A100, asked for 1"},
	} {
		createRated(t, admin, step.name, step.rate, step.models)
		if diff := cmp.Diff(step.want, awaitShare(t, admin, nodes, step.name)); diff != "" {
			t.Fatalf("pod %s (-want +got):\n%s", step.name, diff)
		}
	}

	createRated(t, admin, "too-much", "300.5", "")
	awaitEvent(t, admin, "too-much", `"300.5" is not legal, profile bert reaches at most 300 (on a whole A100), the pod asks for 300.5`)
	createRated(t, admin, "nothing-left", "90", "")
	awaitEvent(t, admin, "nothing-left", "largest free share is 2 of 10 slots on big/g0; container main asks for 3")

	// Annotations can be corrected: 60 takes the two slots that are left.
	patch := []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:"60"}}}`, v1alpha1.AnnotationRate))
	if _, err := admin.CoreV1().Pods("default").Patch(t.Context(), "too-much", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("2 of 10 slots of A100, asked for 1", awaitShare(t, admin, nodes, "too-much")); diff != "" {
		t.Errorf("the corrected pod (-want +got):\n%s", diff)
	}
	list, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	must.OK(t, err)
	checkLedger(t, list.Items, nodes)
}

// createRated creates a pod of bert that asks for one slot and wants a rate, on some models or ("") any.
func createRated(t *testing.T, client kubernetes.Interface, name, rate, models string) {
	t.Helper()
	limits := v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("1")}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelProfile: "bert"}, Annotations: map[string]string{v1alpha1.AnnotationRate: rate},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits},
		}}},
	}
	if models != "" {
		p.Annotations[v1alpha1.AnnotationModels] = models
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitShare waits until a pod is bound and says what it was given.
func awaitShare(t *testing.T, client kubernetes.Interface, nodes []*v1alpha1.GPUNode, name string) string {
	t.Helper()
	var bound *v1.Pod
	poll(t, "pod "+name+" is bound", func(ctx context.Context) (bool, string) {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		bound = p
		return p.Spec.NodeName != "", fmt.Sprintf("%+v", p.Status.Conditions)
	})
	a, err := kube.AssignmentOf(bound)
	must.OK(t, err)
	c := a.Containers[0]
	for _, n := range nodes {
		for _, d := range n.Status.Devices {
			if d.ID != string(c.Devices[0]) {
				continue
			}
			text := fmt.Sprintf("%d of %d slots of %s", c.Share.Slots, d.Slots, d.Model)
			if c.Asked > 0 {
				text += fmt.Sprintf(", asked for %d", c.Asked)
			}
			return text
		}
	}
	return fmt.Sprintf("unknown device %s", c.Devices[0])
}

// awaitEvent waits for an event of a pod that says so.
func awaitEvent(t *testing.T, client kubernetes.Interface, name, says string) {
	t.Helper()
	poll(t, "an event of pod "+name+" says "+says, func(ctx context.Context) (bool, string) {
		list, err := client.EventsV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=" + name})
		if err != nil {
			return false, err.Error()
		}
		var notes []string
		for i := range list.Items {
			if strings.Contains(list.Items[i].Note, says) {
				return true, ""
			}
			notes = append(notes, list.Items[i].Note)
		}
		return false, strings.Join(notes, "\n")
	})
}
