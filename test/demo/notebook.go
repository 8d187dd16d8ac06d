package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The notebook that is parked and woken, its slots, and the one that gets its share meanwhile.
const (
	parkedNotebook = "nb-zoe"
	nextNotebook   = "nb-kim"
	notebookSlots  = 2
	notebookPath   = "/" + namespace + "/" + parkedNotebook
)

// jupyter stands for the Jupyter server of the notebook. It has one kernel, in which a cell runs at first and when somebody opens the page of the
// notebook.
type jupyter struct {
	*site
	activity time.Time
	busy     atomic.Bool
}

func startJupyter(activity time.Time) (*jupyter, error) {
	j := &jupyter{activity: activity}
	j.busy.Store(true)
	var err error
	j.site, err = newSite(j)
	return j, err
}

// ServeHTTP is the part of Jupyter's API that the controller uses, and a page.
func (j *jupyter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	list := []map[string]string{}
	switch path := strings.TrimPrefix(r.URL.Path, notebookPath); path {
	case "/api/kernels":
		state := "idle"
		if j.busy.Load() {
			state = "busy"
		}
		list = append(list, map[string]string{"execution_state": state, "last_activity": j.activity.UTC().Format(time.RFC3339Nano)})
		fallthrough
	case "/api/terminals":
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(list) // the controller asks again
	default:
		j.busy.Store(true)
		_, _ = fmt.Fprintln(w, "the page of "+parkedNotebook) // whoever opens it sees that
	}
}

// newNotebook returns a notebook as examples/notebooks/notebook.yaml has it, for the A100.
func (c *cluster) newNotebook() *appsv1.StatefulSet {
	pod := workload{name: parkedNotebook, kind: notebook, gpu: "a100", containers: alone(notebookSlots)}.pod()
	pod.Labels[nameLabel] = parkedNotebook
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: parkedNotebook, Annotations: map[string]string{
			v1alpha1.AnnotationNotebook: v1alpha1.NotebookPark, v1alpha1.AnnotationNotebookIdle: "1m",
			v1alpha1.AnnotationNotebookPath: notebookPath, v1alpha1.AnnotationNotebookPort: fmt.Sprint(c.jupyter.port),
		}},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), ServiceName: parkedNotebook, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: parkedNotebook}},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels}, Spec: pod.Spec},
		},
	}
}

// openNotebook makes the notebook and waits until its pod runs.
func (c *cluster) openNotebook(ctx context.Context) error {
	if _, err := c.user.AppsV1().StatefulSets(namespace).Create(ctx, c.newNotebook(), metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.awaitNotebook(ctx, true)
}

// awaitNotebook waits until the pod of the notebook runs, or until it is gone.
func (c *cluster) awaitNotebook(ctx context.Context, runs bool) error {
	return poll(ctx, func() error {
		if err := errors.Join(c.schedulerRuns(), c.controllerRuns()); err != nil {
			return fatal{err}
		}
		pod, err := c.user.CoreV1().Pods(namespace).Get(ctx, parkedNotebook+"-0", metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) && !runs:
			return nil
		case apierrors.IsNotFound(err):
			return errors.New("the notebook has no pod yet")
		case err != nil:
			return fatal{err}
		case !runs:
			return errors.New("the pod of the notebook is still there")
		case pod.Status.Phase != v1.PodRunning || pod.DeletionTimestamp != nil:
			return fmt.Errorf("the pod of the notebook is %s", pod.Status.Phase)
		}
		return nil
	})
}

// parkNotebook ends the cell and waits until the controller has parked the notebook. Another one gets its share.
func (c *cluster) parkNotebook(ctx context.Context) error {
	c.jupyter.busy.Store(false)
	if err := c.awaitNotebook(ctx, false); err != nil {
		return err
	}
	pod := workload{name: nextNotebook, kind: notebook, gpu: "a100", containers: alone(notebookSlots)}.pod()
	if _, err := c.user.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	return c.awaitRunning(ctx, nextNotebook)
}

// wakeNotebook opens the page of the notebook at the activator, as a browser does. It waits for the answer, which comes from the server of the
// notebook.
func (c *cluster) wakeNotebook(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.activatorAt+notebookPath+"/lab", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || !strings.Contains(string(text), "the page of "+parkedNotebook) {
		return fmt.Errorf("the activator answered %s: %.300s", answer.Status, text)
	}
	return c.awaitNotebook(ctx, true)
}

// told waits for an event about the notebook, and returns what it says.
func (c *cluster) told(ctx context.Context, reason string) (note string, err error) {
	err = poll(ctx, func() error {
		list, err := c.user.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fatal{err}
		}
		for i := range list.Items {
			if e := &list.Items[i]; e.Reason == reason && e.Regarding.Name == parkedNotebook {
				note = e.Note
				return nil
			}
		}
		return fmt.Errorf("no event has the reason %s", reason)
	})
	return note, err
}
