package fakeapi

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tandem-gpu/tandem/test/must"
)

func pod() *v1.Pod { return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}} }

// A watcher that changes an object that is older than the watch changes nothing in the API.
func TestWatchersGetCopies(t *testing.T) {
	c := NewClientset()
	pods := c.CoreV1().Pods("default")
	if _, err := pods.Create(t.Context(), pod(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	defer w.Stop()
	e := <-w.ResultChan()
	if e.Type != watch.Added {
		t.Fatalf("the first event is %s, want the pod that is there", e.Type)
	}
	e.Object.(*v1.Pod).Labels = map[string]string{"changed": "by the watcher"}
	if got, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || len(got.Labels) != 0 {
		t.Errorf("the pod has labels %v, %v", got.Labels, err)
	}
}

// Each change, and only a change, gives an object another resourceVersion and is told to watchers.
func TestChangesHaveVersions(t *testing.T) {
	c := NewClientset()
	pods := c.CoreV1().Pods("default")
	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	defer w.Stop()
	message := func(text string) []byte {
		return []byte(`{"status":{"conditions":[{"type":"PodScheduled","status":"False","message":"` + text + `"}]}}`)
	}
	patch := func(text string) error {
		answer, err := pods.Patch(t.Context(), "a", types.StrategicMergePatchType, message(text), metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
		if p, err := pods.Get(t.Context(), "a", metav1.GetOptions{}); err != nil || p.ResourceVersion != answer.ResourceVersion {
			t.Errorf("the answer to a patch has version %s, the pod %s, %v", answer.ResourceVersion, p.ResourceVersion, err)
		}
		return nil
	}
	update := func(node string) error {
		p, err := pods.Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		p.Spec.NodeName = node
		_, err = pods.Update(t.Context(), p, metav1.UpdateOptions{})
		return err
	}
	steps := []struct {
		name    string
		do      func() error
		changes bool
	}{
		{"create", func() error { _, err := pods.Create(t.Context(), pod(), metav1.CreateOptions{}); return err }, true},
		{"patch", func() error { return patch("no room") }, true},
		{"the same patch", func() error { return patch("no room") }, false},
		{"another patch", func() error { return patch("still no room") }, true},
		{"update", func() error { return update("n1") }, true},
		{"the same update", func() error { return update("n1") }, false},
	}
	seen := map[string]bool{}
	for _, step := range steps {
		t.Run(step.name, func(t *testing.T) {
			must.OK(t, step.do())
			p, err := pods.Get(t.Context(), "a", metav1.GetOptions{})
			must.OK(t, err)
			if seen[p.ResourceVersion] == step.changes || p.ResourceVersion == "" {
				t.Errorf("resourceVersion %q after %v, changed: want %v", p.ResourceVersion, seen, step.changes)
			}
			seen[p.ResourceVersion] = true
			if !step.changes {
				return
			}
			if told := (<-w.ResultChan()).Object.(*v1.Pod).ResourceVersion; told != p.ResourceVersion {
				t.Errorf("watchers are told of version %s, the pod has %s", told, p.ResourceVersion)
			}
		})
	}
	last := pod()
	last.Name = "last"
	if _, err := pods.Create(t.Context(), last, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if told := (<-w.ResultChan()).Object.(*v1.Pod); told.Name != "last" {
		t.Errorf("watchers are told of one change more, of pod %s to version %s", told.Name, told.ResourceVersion)
	}
}

// A watcher that is far behind gets all events in their order, and one that has ended holds nobody up.
func TestWatchersMayBeSlow(t *testing.T) {
	c := NewClientset()
	pods := c.CoreV1().Pods("default")
	slow, err := pods.Watch(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	defer slow.Stop()
	ended, err := pods.Watch(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	const many = 300
	for i := range many {
		p := pod()
		p.Name = fmt.Sprint("pod-", i)
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if i == many/2 {
			ended.Stop()
		}
	}
	for i := range many {
		if got, want := (<-slow.ResultChan()).Object.(*v1.Pod).Name, fmt.Sprint("pod-", i); got != want {
			t.Fatalf("event %d is of pod %s", i, got)
		}
	}
}
