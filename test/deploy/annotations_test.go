package deploy

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Annotations can be added to a pod that exists.
func TestInjectingAnnotationsOnExistingPods(t *testing.T) {
	body := `{"metadata":{"annotations":{"cdi.k8s.io/x":"nvidia.com/gpu=all"}}}`
	update := func(ctx context.Context, c kubernetes.Interface, p *corev1.Pod) error {
		p = p.DeepCopy()
		annotation("cdi.k8s.io/x")(p)
		_, err := c.CoreV1().Pods(team).Update(ctx, p, metav1.UpdateOptions{})
		return err
	}
	ways := map[string]request{
		"update": update, "merge patch": patch(types.MergePatchType, body), "strategic merge patch": patch(types.StrategicMergePatchType, body),
		"status patch": patch(types.MergePatchType, body, "status"),
	}
	for name, send := range ways {
		for _, who := range []account{admin, jane} {
			t.Run(name+"/"+string(who), func(t *testing.T) {
				c := client(t.Context(), t, who)
				p := createBound(t.Context(), t, genuine)
				wantRefusal(t, send(t.Context(), c, p), byAnnotations, "metadata.annotations cdi.k8s.io/x", "remove this annotation")
				if err := send(t.Context(), c, create(t.Context(), t, c, plainPod())); err != nil {
					t.Errorf("without vGPUs: %v", err)
				}
			})
		}
	}
	for name, send := range map[string]request{
		"ephemeral containers": patch(types.MergePatchType, body, "ephemeralcontainers"), "resize": patch(types.MergePatchType, body, "resize"),
	} {
		t.Run(name+" drop it", func(t *testing.T) {
			p := createBound(t.Context(), t, genuine)
			if err := send(t.Context(), client(t.Context(), t, jane), p); err != nil {
				t.Logf("refused: %v", err)
			}
			if value, ok := get(t.Context(), t, p).Annotations["cdi.k8s.io/x"]; ok {
				t.Errorf("the pod has the annotation, %q", value)
			}
		})
	}
}

// A pod that got such an annotation before the policy was there must stay usable: the kubelet writes its status, and the
// annotation can be removed.
func TestOldAnnotationsStay(t *testing.T) {
	p := pod("old")
	p.Annotations = map[string]string{"cdi.k8s.io/x": "old"}
	p = createOld(t, p, "tandem-pods-annotations")
	for _, step := range []struct {
		name string
		who  account
		send request
		want string
	}{
		{"the kubelet writes the status", kubelet, patch(types.StrategicMergePatchType, `{"status":{"phase":"Running"}}`, "status"), ""},
		{"a user sets another annotation", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"a":"b"}}}`), ""},
		{"a user changes it", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"cdi.k8s.io/x":"new"}}}`), byAnnotations},
		{"a user adds another", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"cdi.k8s.io/y":"old"}}}`), byAnnotations},
		{"a user removes it", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"cdi.k8s.io/x":null}}}`), ""},
		{"a user sets it again", jane, patch(types.MergePatchType, `{"metadata":{"annotations":{"cdi.k8s.io/x":"old"}}}`), byAnnotations},
	} {
		err := step.send(t.Context(), client(t.Context(), t, step.who), p)
		if step.want != "" {
			wantRefusal(t, err, step.want)
		} else if err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
	}
}
