package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// patience bounds every wait of a test for one thing to happen. Only a hang reaches it.
const patience = 5 * time.Minute

// Tenant is an ordinary user with the cluster's role "edit" in a namespace of one test.
type Tenant struct {
	*Cluster
	t         *testing.T
	namespace string
	pods      corev1.PodInterface
}

// Tenant makes the namespace and empties it at the end of the test, so that the next one finds all slots free.
func (c *Cluster) Tenant(t *testing.T, namespace string) *Tenant {
	t.Helper()
	n := &Tenant{Cluster: c, t: t, namespace: namespace}
	user := namespace + "-user"
	config, err := c.plane.Config(user, nil)
	n.must(err)
	client, err := kubernetes.NewForConfig(config)
	n.must(err)
	n.pods = client.CoreV1().Pods(namespace)
	t.Cleanup(n.leave)
	object := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err = c.client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{})
	n.must(err)
	_, err = c.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "user"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, metav1.CreateOptions{})
	n.must(err)
	n.await("the right to create pods", func(ctx context.Context) error {
		_, err := n.pods.Create(ctx, newPod("probe", share("main", 1)), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return n
}

// leave shows what helps after a failure and empties the namespace.
func (n *Tenant) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if n.t.Failed() {
		n.report(ctx, n.t, n.namespace)
	}
	n.deleteOwners(ctx)
	admin := n.client.CoreV1().Pods(n.namespace)
	if err := admin.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		n.t.Errorf("empty namespace: %v", err)
	}
	err := poll(ctx, "an empty namespace", func(ctx context.Context) error {
		pods, err := admin.List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) > 0 {
			err = fmt.Errorf("%d pods are left, pod %s among them", len(pods.Items), pods.Items[0].Name)
		}
		return err
	})
	if err != nil {
		n.t.Error(err)
	}
	if err := n.client.CoreV1().Namespaces().Delete(ctx, n.namespace, metav1.DeleteOptions{}); err != nil {
		n.t.Errorf("delete namespace: %v", err)
	}
}

func (n *Tenant) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// await waits until check returns nil.
func (n *Tenant) await(what string, check func(context.Context) error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), patience)
	defer cancel()
	n.must(poll(ctx, what, check))
}

func (n *Tenant) create(pod *v1.Pod) *v1.Pod {
	n.t.Helper()
	created, err := n.pods.Create(n.t.Context(), pod, metav1.CreateOptions{})
	n.must(err)
	return created
}

func (n *Tenant) get(name string) *v1.Pod {
	n.t.Helper()
	pod, err := n.pods.Get(n.t.Context(), name, metav1.GetOptions{})
	n.must(err)
	return pod
}

func (n *Tenant) patch(name, patch string) {
	n.t.Helper()
	_, err := n.pods.Patch(n.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	n.must(err)
}

// delete deletes pods and waits until they are gone.
func (n *Tenant) delete(names ...string) {
	n.t.Helper()
	for _, name := range names {
		n.must(n.pods.Delete(n.t.Context(), name, metav1.DeleteOptions{}))
	}
	for _, name := range names {
		n.await("the end of pod "+name, func(ctx context.Context) error {
			_, err := n.pods.Get(ctx, name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
				return nil
			case err == nil:
				return errors.New("it still exists")
			}
			return err
		})
	}
}

// running waits until all containers of the pods run and returns the pods.
func (n *Tenant) running(names ...string) []*v1.Pod {
	n.t.Helper()
	var pods []*v1.Pod
	for _, name := range names {
		n.await("running pod "+name, func(ctx context.Context) error {
			pod, err := n.pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if err := runs(pod); err != nil {
				return err
			}
			pods = append(pods, pod)
			return nil
		})
	}
	return pods
}

// runs returns nil when all containers of the pod run.
func runs(pod *v1.Pod) error {
	if pod.Status.Phase != v1.PodRunning {
		return fmt.Errorf("it is %s: %s", pod.Status.Phase, pod.Status.Message)
	}
	for _, s := range pod.Status.ContainerStatuses {
		if s.State.Running == nil {
			return fmt.Errorf("container %s does not run", s.Name)
		}
	}
	return nil
}

// event waits for an event of the pod whose message holds all of the texts, and returns the message.
func (n *Tenant) event(pod string, texts ...string) string {
	n.t.Helper()
	var found string
	n.await(fmt.Sprintf("an event of pod %s with %q", pod, texts), func(ctx context.Context) error {
		messages, err := n.messages(ctx, pod)
		if err != nil {
			return err
		}
		for _, message := range messages {
			if containsAll(message, texts) {
				found = message
				return nil
			}
		}
		return fmt.Errorf("its events are %q", messages)
	})
	return found
}

// messages returns the messages of a pod's events.
func (n *Tenant) messages(ctx context.Context, pod string) ([]string, error) {
	events, err := n.client.CoreV1().Events(n.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var messages []string
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "Pod" && e.InvolvedObject.Name == pod {
			messages = append(messages, e.Message)
		}
	}
	return messages, nil
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// unbound fails the test if the pod has a node.
func (n *Tenant) unbound(name string) {
	n.t.Helper()
	if node := n.get(name).Spec.NodeName; node != "" {
		n.t.Errorf("pod %s was bound to %s, want it pending", name, node)
	}
}

// neverStarted fails the test if a container of the pod has ever started.
func (n *Tenant) neverStarted(name string) {
	n.t.Helper()
	for _, s := range n.get(name).Status.ContainerStatuses {
		if s.ContainerID != "" || s.State.Running != nil || s.State.Terminated != nil {
			n.t.Errorf("container %s of pod %s was started: %+v", s.Name, name, s)
		}
	}
}

// healthySlots returns nil when the kubelet counts exactly these slots as healthy, by device.
func (n *Tenant) healthySlots(want map[string]int) error {
	raw, err := os.ReadFile(filepath.Join(kubeletDir, "device-plugins", "kubelet_internal_checkpoint"))
	if err != nil {
		return err
	}
	var checkpoint struct {
		Data struct{ RegisteredDevices map[string][]string }
	}
	if err := json.Unmarshal(raw, &checkpoint); err != nil {
		return err
	}
	have := map[string]int{}
	for _, id := range checkpoint.Data.RegisteredDevices[v1alpha1.ResourceVGPU] {
		device, _, _ := strings.Cut(id, v1alpha1.SlotSeparator)
		have[device]++
	}
	if !maps.Equal(have, want) {
		return fmt.Errorf("the kubelet counts the slots %v, want %v", have, want)
	}
	return nil
}

// containers returns the identity of every container of running pods.
func (n *Tenant) containers(names ...string) map[string]string {
	n.t.Helper()
	all := map[string]string{}
	for _, pod := range n.running(names...) {
		n.checkShares(pod)
		for _, s := range pod.Status.ContainerStatuses {
			all[pod.Name] = fmt.Sprintf("%s, %d restarts, since %s", s.ContainerID, s.RestartCount, s.State.Running.StartedAt)
		}
	}
	return all
}

// device returns the one device of a pod of one container.
func (n *Tenant) device(pod *v1.Pod) string {
	n.t.Helper()
	containers := n.assignment(pod).Containers
	if len(containers) != 1 || len(containers[0].Devices) != 1 {
		n.t.Fatalf("pod %s has assignment %+v, want one container on one device", pod.Name, containers)
	}
	return containers[0].Devices[0]
}
