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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/fakecluster"
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
		if err := cluster.AddNode(ctx, client, name, nil, has()); err != nil {
			return err
		}
		return cluster.AddGPUNode(ctx, objects, gpuNode(name))
	})
}

// has is what a node has.
func has() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("512Gi"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: *resource.NewQuantity(devicesPerNode*slotsPerDevice, resource.DecimalSI),
	}
}

// gpuNode returns the GPUNode of a node.
func gpuNode(name string) *v1alpha1.GPUNode {
	g := fakecluster.GPUNode(name, devicesPerNode)
	for i := range g.Status.Devices {
		d := &g.Status.Devices[i]
		d.Model, d.Slots, d.Contexts = "NVIDIA-A100-SXM4-40GB", slotsPerDevice, 48
	}
	return g
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
