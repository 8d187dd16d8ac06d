package main

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// namespace of the demo's users.
const namespace = "lab"

// gpuLabel is the node label by which pods select a GPU model.
const gpuLabel = "example.com/gpu"

// kind of work, which colours the picture.
type kind string

const (
	notebook  kind = "notebook"
	training  kind = "training"
	inference kind = "inference"
)

func (k kind) colour() colour {
	switch k {
	case notebook:
		return green
	case training:
		return blue
	default:
		return yellow
	}
}

// workload is a pod of the demo.
type workload struct {
	name string
	kind kind
	// gpu is the selected model, "" for any.
	gpu         string
	init        []ask
	containers  []ask
	annotations map[string]string
	// why says what is special, for people.
	why string
}

// ask is the request of a container. Zero memory leaves it in proportion to the slots.
type ask struct {
	name   string
	slots  int64
	memory string
}

func alone(slots int64) []ask { return []ask{{name: "main", slots: slots}} }

// workloads all run on two nodes of two A100 with 10 slots each and two nodes of two T4 with 4 slots each, if they come
// in this order. The largest come first, so that the free slots are never too scattered for the next.
func workloads() []workload {
	return []workload{
		{name: "train-vision", kind: training, gpu: "a100", containers: alone(20), why: "20 slots: two whole A100 with NVLink"},
		{name: "train-nlp", kind: training, gpu: "a100", init: []ask{{name: "fetch", slots: 2}}, containers: alone(6),
			why: "an init container with 2 slots first"},
		{name: "train-audio", kind: training, gpu: "a100", containers: alone(4), why: "4/10 of one A100"},
		{name: "infer-video", kind: inference, gpu: "t4", containers: alone(4), why: "4 slots are a whole T4"},
		{name: "infer-chat", kind: inference, gpu: "t4", containers: []ask{{name: "model", slots: 2}, {name: "embed", slots: 1}},
			why: "two containers, a share for each"},
		{name: "search-1", kind: inference, gpu: "t4", containers: alone(2), why: "2/4 of one T4"},
		{name: "search-2", kind: inference, gpu: "t4", containers: alone(2), why: "2/4 of one T4"},
		{name: "search-3", kind: inference, gpu: "t4", containers: alone(2), why: "2/4 of one T4"},
		{name: "infer-ocr", kind: inference, gpu: "t4", containers: alone(1), why: "1/4 of one T4"},
		{name: "nb-ada", kind: notebook, gpu: "a100", containers: alone(2), why: "2/10 of one A100"},
		{name: "nb-bob", kind: notebook, gpu: "a100", containers: alone(3), why: "3/10, may burst to 60 % of the SMs",
			annotations: map[string]string{v1alpha1.AnnotationComputeLimit: "60"}},
		{name: "nb-eve", kind: notebook, gpu: "a100", containers: []ask{{name: "main", slots: 1, memory: "6Gi"}},
			why: "1/10 with more memory than a tenth"},
		{name: "nb-dan", kind: notebook, containers: alone(2), why: "2 slots of any GPU"},
	}
}

// refusal is an impossible pod, and the required words of the reason.
type refusal struct {
	workload
	// atOnce: the API server denies the pod; else it stays pending with an event.
	atOnce bool
	want   []string
}

func refusals() []refusal {
	forged := `{"version":1,"uid":"","node":"a100-1","containers":[]}`
	return []refusal{
		{workload: workload{name: "nb-typo", kind: notebook, containers: alone(13), why: "13 slots of GPUs with 10 or 4"},
			want: []string{v1alpha1.ResourceVGPU, "13", "legal", "replaced"}},
		{workload: workload{name: "train-huge", kind: training, gpu: "a100", containers: alone(8), why: "8 slots, more than any A100 has left"},
			want: []string{"free", " of "}},
		{workload: workload{name: "nb-mallory", kind: notebook, gpu: "a100", containers: alone(1),
			annotations: map[string]string{v1alpha1.AnnotationAssignment: forged}, why: "brings an assignment of its own"},
			atOnce: true, want: []string{v1alpha1.AnnotationAssignment}},
	}
}

// pod returns the pod as a user writes it.
func (w workload) pod() *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name, Namespace: namespace, Annotations: w.annotations,
			Labels: map[string]string{"app.kubernetes.io/component": string(w.kind)},
		},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName},
	}
	if w.gpu != "" {
		pod.Spec.NodeSelector = map[string]string{gpuLabel: w.gpu}
	}
	for _, a := range w.init {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, a.container())
	}
	for _, a := range w.containers {
		pod.Spec.Containers = append(pod.Spec.Containers, a.container())
	}
	return pod
}

func (a ask) container() v1.Container {
	limits := v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(a.slots, resource.DecimalSI)}
	if a.memory != "" {
		limits[v1alpha1.ResourceMemory] = resource.MustParse(a.memory)
	}
	return v1.Container{
		Name: a.name, Image: "example.com/" + a.name, // never pulled: nothing runs
		Resources: v1.ResourceRequirements{Limits: limits},
	}
}
