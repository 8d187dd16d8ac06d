package fakekubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
)

// heartbeatInterval is the time between two node statuses without a change, as the kubelet's default.
const heartbeatInterval = 10 * time.Second

func defaultResources() v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse("64"),
		v1.ResourceMemory: resource.MustParse("512Gi"),
		v1.ResourcePods:   resource.MustParse("110"),
	}
}

// register creates the node where it is missing, gives it the labels and takes the taint of a new node from it.
func (k *Kubelet) register(ctx context.Context) error {
	nodes := k.config.Client.CoreV1().Nodes()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.config.Node, Labels: map[string]string{
		v1.LabelHostname: k.config.Node, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
	}}}
	maps.Copy(node.Labels, k.config.Labels)
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create node: %w", err)
	}
	if err := k.updateStatus(ctx); err != nil {
		return err
	}
	controller := k.config.Controller.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		now, err := controller.Get(ctx, k.config.Node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get node: %w", err)
		}
		taints := len(now.Spec.Taints)
		now.Spec.Taints = slices.DeleteFunc(now.Spec.Taints, func(t v1.Taint) bool { return t.Key == v1.TaintNodeNotReady })
		if len(now.Spec.Taints) == taints {
			return nil
		}
		_, err = controller.Update(ctx, now, metav1.UpdateOptions{})
		return err
	})
}

// heartbeats writes the node's status when it is dirty, and from time to time.
func (k *Kubelet) heartbeats(ctx context.Context) {
	ticker := time.NewTicker(heartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.dirty:
		case <-ticker.C:
		}
		for ctx.Err() == nil {
			err := k.updateStatus(ctx)
			if err == nil {
				break
			}
			klog.FromContext(ctx).Error(err, "Update node status", "node", k.config.Node)
			pause(ctx, time.Second)
		}
	}
}

func (k *Kubelet) updateStatus(ctx context.Context) error {
	nodes := k.config.Client.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		node, err := nodes.Get(ctx, k.config.Node, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get node: %w", err)
		}
		capacity, allocatable := k.config.Resources.DeepCopy(), k.config.Resources.DeepCopy()
		if len(capacity) == 0 {
			capacity, allocatable = defaultResources(), defaultResources()
		}
		total, healthy := k.devices.capacity()
		maps.Copy(capacity, total)
		maps.Copy(allocatable, healthy)
		node.Status.Capacity, node.Status.Allocatable = capacity, allocatable
		node.Status.NodeInfo.KubeletVersion = "v1.37.2-fake"
		node.Status.Conditions = []v1.NodeCondition{{
			Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", Message: "a stand-in without a container runtime",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: readySince(node),
		}}
		_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
		return err
	})
}

func readySince(node *v1.Node) metav1.Time {
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return c.LastTransitionTime
		}
	}
	return metav1.Now()
}
