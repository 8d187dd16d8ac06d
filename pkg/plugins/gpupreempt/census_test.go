package gpupreempt

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func (s *census) info(name string) fwk.NodeInfo {
	return s.nodes[slices.IndexFunc(s.nodes, func(n fwk.NodeInfo) bool { return n.Node().Name == name })]
}

// change does one thing that happens in clusters.
func (s *census) change(t testing.TB, r *rapid.T) {
	at := rapid.IntRange(0, len(s.nodes)-1).Draw(r, "node")
	switch rapid.SampledFrom([]string{"pod", "pod", "pod", "pod", "new", "new", "gone", "clock", "budget", "victim", "node", "lost", "order", "expire"}).Draw(r, "change") {
	case "pod":
		s.update(t, r, at)
	case "new":
		s.named++
		s.place(t, drawPod(r, s.now, fmt.Sprintf("p%d", s.named)), at, vgpu.Slots(rapid.IntRange(0, 4).Draw(r, "slots")))
	case "gone":
		s.remove(t, r, at)
	case "clock":
		s.now = s.now.Add(time.Duration(rapid.Int64Range(1, 3e12).Draw(r, "passes")))
	case "budget":
		s.budget(t, r)
	case "victim":
		if pods := s.nodes[at].GetPods(); len(pods) > 0 {
			s.chooses(kube.UIDOf(pods[0].GetPod()), s.now.Add(time.Duration(rapid.Int64Range(-1, 1e12).Draw(r, "until"))))
		}
	case "node":
		s.addNode(t, rapid.Bool().Draw(r, "bare"))
	case "lost":
		if len(s.nodes) > 1 {
			s.nodes, s.ledgers = slices.Delete(s.nodes, at, at+1), slices.Delete(s.ledgers, at, at+1)
		}
	case "order":
		s.nodes[0], s.nodes[at] = s.nodes[at], s.nodes[0]
		s.ledgers[0], s.ledgers[at] = s.ledgers[at], s.ledgers[0]
	case "expire":
		s.plugin.notes.expire(s.now)
	}
}

// update replaces a pod of a node by one that differs: as the scheduler's cache does, and as a snapshot may.
func (s *census) update(t testing.TB, r *rapid.T, at int) {
	pods := s.nodes[at].GetPods()
	if len(pods) == 0 {
		return
	}
	old := rapid.SampledFrom(pods).Draw(r, "pod")
	p := old.GetPod().DeepCopy()
	drawn := drawPod(r, s.now, p.Name)
	p.Labels, p.Annotations, p.Status, p.DeletionTimestamp = drawn.Labels, drawn.Annotations, drawn.Status, drawn.DeletionTimestamp
	if rapid.Bool().Draw(r, "in place") {
		must.OK(t, old.(*framework.PodInfo).Update(p))
		return
	}
	must.OK(t, s.nodes[at].RemovePod(klog.FromContext(context.Background()), old.GetPod()))
	s.nodes[at].AddPodInfo(info(t, p))
}

func (s *census) remove(t testing.TB, r *rapid.T, at int) {
	pods := s.nodes[at].GetPods()
	if len(pods) == 0 {
		return
	}
	p := rapid.SampledFrom(pods).Draw(r, "pod").GetPod()
	must.OK(t, s.nodes[at].RemovePod(klog.FromContext(context.Background()), p))
	if n := s.ledgers[at]; n != nil {
		n.Remove(kube.UIDOf(p))
	}
}

func (s *census) budget(t testing.TB, r *rapid.T) {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: rapid.SampledFrom([]string{"a", "b"}).Draw(r, "budget")},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": rapid.SampledFrom([]string{"x", "y"}).Draw(r, "app")}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: rapid.Int32Range(0, 2).Draw(r, "allowed")},
	}
	var err error
	if rapid.Bool().Draw(r, "goes") {
		err = s.budgets.Delete(b)
	} else {
		err = s.budgets.Add(b)
	}
	must.OK(t, err)
}

// drawPod returns a pod as it may be at a time.
func drawPod(r *rapid.T, now time.Time, name string) *v1.Pod {
	p := pod(name, 0, rapid.Int32Range(0, 3).Draw(r, "pod's priority"))
	p.UID = types.UID("uid-" + name)
	p.Namespace = rapid.SampledFrom([]string{"default", "default", "system"}).Draw(r, "namespace")
	p.Labels = rapid.SampledFrom([]map[string]string{nil, {"app": "x"}, {"app": "y"}, {"tier": "gold"}, {v1alpha1.LabelGang: "g", "app": "x"}, {v1alpha1.LabelGang: "h"}}).Draw(r, "labels")
	p.Annotations = maps.Clone(rapid.SampledFrom([]map[string]string{
		nil, {v1alpha1.AnnotationMaxLatency: "40ms"}, {v1.MirrorPodAnnotationKey: "x"}, {},
	}).Draw(r, "annotations"))
	ago := func(label string) time.Time {
		return now.Add(-time.Duration(rapid.Int64Range(-1e12, 1e13).Draw(r, label)))
	}
	if p.Annotations != nil && rapid.Bool().Draw(r, "saves") {
		p.Annotations[v1alpha1.AnnotationCheckpointTime] = ago("saved").UTC().Format(time.RFC3339Nano)
	}
	if rapid.Bool().Draw(r, "started") {
		p.Status.StartTime = &metav1.Time{Time: ago("start")}
	}
	if rapid.IntRange(0, 3).Draw(r, "deleted") == 0 {
		p.DeletionTimestamp = &metav1.Time{Time: now.Add(time.Duration(rapid.Int64Range(-6e10, 6e10).Draw(r, "gone by")))}
	}
	return p
}
