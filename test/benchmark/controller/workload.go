package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/cluster"
)

const (
	devicesPerNode = 8
	namespace      = "default"
)

// workload is what the cluster has.
type workload struct{ nodes, jobs, members int }

// clients write what the cluster has.
type clients struct {
	core    kubernetes.Interface
	objects dynamic.Interface
}

// fill creates all objects, as an administrator without any webhook or policy.
func (w workload) fill(ctx context.Context, plane *sandbox.ControlPlane) error {
	for _, folder := range []string{"base", "crds", "controller"} {
		if _, err := cluster.Apply(ctx, plane, filepath.Join("deploy", folder)); err != nil {
			return err
		}
	}
	config := rest.CopyConfig(plane.Admin())
	config.QPS = -1
	core, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	c := clients{core, objects}
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(16)
	for i := range w.nodes {
		writers.Go(func() error { return c.addNode(ctx, nodeName(i)) })
	}
	for i := range w.jobs {
		writers.Go(func() error { return c.addJob(ctx, w, i) })
	}
	return writers.Wait()
}

// devicesOf returns the devices of a node, with IDs as the driver has them.
func devicesOf(node string) []vgpu.Device {
	devices := testkit.A100.Devices(node, devicesPerNode)
	for i := range devices {
		devices[i].ID = vgpu.DeviceID(fmt.Sprintf("GPU-%s-%d", node, i))
	}
	return devices
}

func nodeName(i int) string { return fmt.Sprintf("node-%05d", i) }

// addNode creates a ready node with its GPUs.
func (c clients) addNode(ctx context.Context, name string) error {
	err := cluster.AddNode(ctx, c.core, name, map[string]string{v1.LabelHostname: name, v1.LabelTopologyZone: "zone"}, v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("512Gi"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: resource.MustParse("80"),
	})
	if err != nil {
		return err
	}
	g := &v1alpha1.GPUNode{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}}
	for i, d := range devicesOf(name) {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: string(d.ID), Index: int32(i), Model: d.Model, Memory: *resource.NewQuantity(int64(d.Memory), resource.BinarySI), Slots: int32(d.Slots),
			Contexts: 48, ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		})
	}
	return cluster.AddGPUNode(ctx, c.objects, g)
}

// addJob creates a Job and its members: the first half of them runs, each with a whole GPU.
func (c clients) addJob(ctx context.Context, w workload, number int) error {
	name := fmt.Sprintf("job-%04d", number)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{
		CompletionMode: new(batchv1.IndexedCompletion), Parallelism: new(int32(w.members)), Completions: new(int32(w.members)),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}},
		Template: v1.PodTemplateSpec{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "train", Image: "none"}}}},
	}}
	job, err := c.core.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for i := range w.members {
		gpu := -1
		if i < w.members/2 {
			gpu = number*(w.members/2) + i
		}
		if err := c.addMember(ctx, job, w.members, i, gpu); err != nil {
			return err
		}
	}
	return nil
}

// addMember creates a member of a Job, on the GPU of a number, or without one where that is below 0.
func (c clients) addMember(ctx context.Context, job *batchv1.Job, most, index, gpu int) error {
	name := fmt.Sprintf("%s-%d", job.Name, index)
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))},
		Labels: map[string]string{v1alpha1.LabelGang: job.Name, batchv1.JobCompletionIndexAnnotation: strconv.Itoa(index)},
		Annotations: map[string]string{
			v1alpha1.AnnotationMinMembers: "2", v1alpha1.AnnotationElasticWorkers: fmt.Sprint("2-", most),
		},
	}}
	p.Spec.SchedulerName, p.Spec.RestartPolicy = v1alpha1.SchedulerName, v1.RestartPolicyNever
	p.Spec.Containers = []v1.Container{{Name: "train", Image: "none", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("16Gi")},
		Limits:   v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("10")},
	}}}
	if gpu < 0 {
		_, err := c.core.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
		return err
	}
	node := nodeName(gpu / devicesPerNode)
	device := devicesOf(node)[gpu%devicesPerNode]
	p.Spec.NodeName = node
	stored, err := c.core.CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	raw, err := kube.EncodeAssignment(vgpu.Assignment{UID: vgpu.UID(stored.UID), Pod: namespace + "/" + name, Node: node, Containers: []vgpu.ContainerAssignment{{
		Name: "train", Devices: []vgpu.DeviceID{device.ID},
		Share: vgpu.Share{Devices: 1, Slots: device.Slots, ComputeLimit: vgpu.WholeGPU, Memory: device.Memory, MemoryLimit: device.Memory},
	}}})
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&stored.ObjectMeta, v1alpha1.AnnotationAssignment, raw)
	_, err = c.core.CoreV1().Pods(namespace).Update(ctx, stored, metav1.UpdateOptions{})
	return err
}
