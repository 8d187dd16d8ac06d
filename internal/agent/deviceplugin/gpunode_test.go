package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// api is an API server in memory that can fail.
func (b *bench) api() *fake.FakeDynamicClient {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.GPUNodes: "GPUNodeList"})
	b.gpu = client.Resource(v1alpha1.GPUNodes)
	return client
}

func (b *bench) gpuNode() (v1alpha1.GPUNode, error) {
	var g v1alpha1.GPUNode
	have, err := b.gpu.Get(context.Background(), fixture.Node, metav1.GetOptions{})
	if err != nil {
		return g, err
	}
	return g, runtime.DefaultUnstructuredConverter.FromUnstructured(have.Object, &g)
}

// awaitReady waits for the reason of the Ready condition.
func (b *bench) awaitReady(status metav1.ConditionStatus, reason string) v1alpha1.GPUNode {
	b.t.Helper()
	var g v1alpha1.GPUNode
	fixture.Eventually(b.t, "GPUNode", func() (err error) {
		if g, err = b.gpuNode(); err != nil {
			return err
		}
		c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("condition %+v, want %s %s", c, status, reason)
		}
		return nil
	})
	return g
}

func TestGPUNodeHasTheInventory(t *testing.T) {
	b := newBench(t)
	b.api()
	n := int32(4)
	b.config.Slots.Models = map[string]int32{"Tesla T4": n}
	b.driver.gpus[0] = inventory.GPU{
		ID: fixture.G1, Index: 1, Minor: 3, Model: "Tesla T4", Memory: 16 * fixture.GiB, ComputeMajor: 7, ComputeMinor: 5, NUMANode: -1, Contexts: 48,
		Links: []v1alpha1.GPULink{{Peer: fixture.G0, Type: v1alpha1.LinkPHB}},
	}
	b.launch()
	g := b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
	zero := int32(0)
	want := v1alpha1.GPUNodeStatus{
		DeviceCount: 2, HealthyCount: 2, SlotCount: 14, Models: "NVIDIA-A100-SXM4-40GB,Tesla-T4", DriverVersion: "580.95.05",
		Devices: []v1alpha1.GPUDevice{{
			ID: fixture.G0, Index: 0, Model: "NVIDIA-A100-SXM4-40GB", Memory: resource.MustParse("40Gi"), Slots: 10, Contexts: 48,
			ComputeCapability: "8.0", NUMANode: &zero, PCIBusID: "00000000:07:00.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		}, {
			ID: fixture.G1, Index: 1, Model: "Tesla-T4", Memory: resource.MustParse("16Gi"), Slots: 4, Contexts: 48,
			ComputeCapability: "7.5", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
			Links: []v1alpha1.GPULink{{Peer: fixture.G0, Type: v1alpha1.LinkPHB}},
		}},
	}
	g.Status.Conditions = nil
	if diff := cmp.Diff(want, g.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}

	b.driver.set(fixture.G1, &inventory.Sickness{Reason: "GPULost", Message: "fell off the bus"})
	fixture.Eventually(t, "health", func() error {
		g, err := b.gpuNode()
		if err == nil && (g.Status.HealthyCount != 1 || g.Status.SlotCount != 10 || g.Status.Devices[1].Reason != "GPULost") {
			err = fmt.Errorf("status %+v", g.Status)
		}
		return err
	})
}

func TestGPUNodeFollowsTheKubeletAndTheEnd(t *testing.T) {
	b := newBench(t)
	b.api()
	b.run()
	b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
	b.kubelet.stop()
	b.awaitReady(metav1.ConditionFalse, v1alpha1.ReadyNotRegistered)
	b.kubelet.start()
	b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
	must.OK(t, b.stop())
	b.awaitReady(metav1.ConditionFalse, v1alpha1.ReadyStopping)
}

// An administrator who takes Tandem off a node deletes the GPUNode while the agent may still be ending: it stays
// deleted.
func TestGPUNodeStaysDeletedAtTheEnd(t *testing.T) {
	b := newBench(t)
	b.api()
	b.run()
	b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll) // else the first canaries may change the GPUNode after the deletion
	must.OK(t, b.gpu.Delete(t.Context(), fixture.Node, metav1.DeleteOptions{}))
	must.OK(t, b.stop())
	if g, err := b.gpuNode(); !apierrors.IsNotFound(err) {
		t.Errorf("the agent made the GPUNode again: %+v, %v", g.Status.Conditions, err)
	}
}

func TestGPUNodeIsWrittenOnChangeOnly(t *testing.T) {
	b := newBench(t)
	client := b.api()
	a := b.run()
	b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
	b.awaitCondition(v1alpha1.ConditionMonitored, v1alpha1.MonitoredAll)
	client.ClearActions()
	status, _ := a.status()
	for range 3 {
		must.OK(t, a.publisher().Publish(t.Context(), status))
	}
	for _, action := range client.Actions() {
		if action.GetVerb() != "get" {
			t.Errorf("%s although nothing changed", action.GetVerb())
		}
	}
}

// The kubelet is served while the API server fails, and the inventory arrives when it answers again.
func TestAPIServerFails(t *testing.T) {
	failures := map[string]error{
		"CRD absent": &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: v1alpha1.Domain, Kind: "GPUNode"}},
		"too many":   apierrors.NewTooManyRequests("slow down", 1),
		"gone":       errors.New("connection refused"),
		"conflict":   apierrors.NewConflict(schema.GroupResource{Resource: "gpunodes"}, fixture.Node, errors.New("changed")),
	}
	for name, failure := range failures {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			client := b.api()
			var failed atomic.Int32
			client.PrependReactor("*", "gpunodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
				if failed.Load() > 0 || action.GetVerb() == "get" && name == "conflict" {
					return false, nil, nil
				}
				failed.Add(1)
				return true, nil, failure
			})
			a := b.run()
			pod := fixture.Placed(t, "train", fixture.App(fixture.G0, 3))
			b.kubelet.admit(pod)
			if err := b.kubelet.begin(pod, "main"); err != nil {
				t.Error(err)
			}
			b.awaitReady(metav1.ConditionTrue, v1alpha1.ReadyServing)
			if failed.Load() != 1 || a.ready() != nil {
				t.Errorf("%d failures, ready %v", failed.Load(), a.ready())
			}
			if got := b.metric(`tandem_agent_gpunode_writes_total{result="error"}`); got != "1" {
				t.Errorf("errors counted: %q, want 1", got)
			}
		})
	}
}
