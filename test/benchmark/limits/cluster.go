package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	devicesPerNode = 8
	slotsPerDevice = 10
)

// addNodes creates the nodes with their GPUNodes.
func (w workload) addNodes(ctx context.Context, plane *sandbox.ControlPlane) error {
	client, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(plane.Admin())
	if err != nil {
		return err
	}
	return each(w.nodes, func(i int) error {
		name := fmt.Sprintf("node-%03d", i)
		if err := addNode(ctx, client, name); err != nil {
			return fmt.Errorf("add node %s: %w", name, err)
		}
		if err := addGPUNode(ctx, objects.Resource(v1alpha1.GPUNodes), name); err != nil {
			return fmt.Errorf("add GPUNode %s: %w", name, err)
		}
		return nil
	})
}

func addNode(ctx context.Context, client kubernetes.Interface, name string) error {
	n, err := client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	n.Spec.Taints = nil // admission marks new nodes as not ready, and no controller runs that would take it back
	if n, err = client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
		return err
	}
	n.Status.Capacity = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("512Gi"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: *resource.NewQuantity(devicesPerNode*slotsPerDevice, resource.DecimalSI),
	}
	n.Status.Allocatable = n.Status.Capacity
	_, err = client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}

func addGPUNode(ctx context.Context, gpuNodes dynamic.ResourceInterface, name string) error {
	g := &v1alpha1.GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
	g.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now(),
	}}
	for i := range devicesPerNode {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: fmt.Sprintf("GPU-%s-%d", name, i), Index: int32(i), Model: "NVIDIA-A100-SXM4-40GB", Memory: resource.MustParse("40Gi"),
			Slots: slotsPerDevice, Contexts: 48, ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		})
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		return err
	}
	status := object["status"]
	stored, err := gpuNodes.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	stored.Object["status"] = status
	_, err = gpuNodes.UpdateStatus(ctx, stored, metav1.UpdateOptions{})
	return err
}

// watchBound returns a channel that gets the time when the last of the pods has a node.
func (w workload) watchBound(ctx context.Context, client kubernetes.Interface) (<-chan time.Time, error) {
	all := make(chan time.Time, 1)
	bound := sets.New[string]()
	see := func(object any) {
		pod, ok := object.(*v1.Pod)
		if !ok || pod.Spec.NodeName == "" || bound.Has(pod.Name) {
			return
		}
		if bound.Insert(pod.Name); bound.Len() == w.total() {
			all <- time.Now()
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, updated any) { see(updated) },
	}); err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return all, ctx.Err()
}

// metrics are those of a scheduler.
type metrics struct {
	url    string
	client *http.Client
}

func newMetrics(url string) *metrics {
	// The scheduler signs its certificate itself.
	return &metrics{url: url, client: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}}
}

func (m *metrics) get(ctx context.Context, path string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, nil)
	if err != nil {
		return "", err
	}
	response, err := m.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, response.Status)
	}
	return string(body), err
}

// awaitReady polls until the scheduler says that it is ready.
func (m *metrics) awaitReady(ctx context.Context, process *sandbox.Process) error {
	for {
		_, err := m.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("the scheduler ended: %w\n%s", process.Err(), process.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("the scheduler is not ready: %w\n%s", err, process.Tail(20))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// doubts counts the binds with an unknown result.
func (m *metrics) doubts(ctx context.Context) (float64, error) {
	text, err := m.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, `tandem_scheduler_binds_total{result="unknown"} `); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	if !strings.Contains(text, "tandem_scheduler_binds_total{") {
		return 0, fmt.Errorf("the scheduler tells of no bind")
	}
	return 0, nil
}
