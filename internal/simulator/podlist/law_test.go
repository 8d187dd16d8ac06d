package podlist_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/simulator/podlist"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
)

var amounts = []string{"0", "1", "2", "3", "7", "10", "12", "64", "96", "100", "1.2Gi", "1288490188800m", "1e9", "1e3000000", "-1", "128Pi", "999999"}

// container draws a container with legal and illegal amounts.
func container(t *rapid.T, name string) v1.Container {
	c := v1.Container{Name: name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}
	for _, of := range []v1.ResourceName{
		"tandem-gpu.io/vgpu", "tandem-gpu.io/vgpu-memory", "nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/gpumem", "nvidia.com/mig-1g.5gb",
		"volcano.sh/vgpu-number", "amd.com/gpu", "google.com/tpu", "cpu", "memory",
	} {
		if rapid.IntRange(0, 3).Draw(t, "asks") == 0 {
			c.Resources.Limits[of] = resource.MustParse(rapid.SampledFrom(amounts).Draw(t, string(of)))
		}
	}
	return c
}

// Each of any pods is in the list or counted as left out, and the simulator reads the list.
func TestListLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		always := v1.ContainerRestartPolicyAlways
		pods := make([]*v1.Pod, rapid.IntRange(1, 6).Draw(t, "pods"))
		for i := range pods {
			pods[i] = &v1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: fmt.Sprintf("p%d", rapid.IntRange(0, 7).Draw(t, "name")), Annotations: map[string]string{},
				CreationTimestamp: metav1.Unix(rapid.Int64Range(1_700_000_000, 1_800_000_000).Draw(t, "created"), 0),
			}}
			for key, values := range map[string][]string{"tandem-gpu.io/gpu-models": {"T4", "T4,A|B", "\x00", ""}, "gpu-fraction": {"0.5", "2", "x"}} {
				if rapid.Bool().Draw(t, "annotated") {
					pods[i].Annotations[key] = rapid.SampledFrom(values).Draw(t, key)
				}
			}
			if rapid.Bool().Draw(t, "init") {
				pods[i].Spec.InitContainers = []v1.Container{container(t, "init"), container(t, "sidecar")}
				pods[i].Spec.InitContainers[1].RestartPolicy = &always
			}
			pods[i].Spec.Containers = []v1.Container{container(t, "a"), container(t, "b")}
			p := rapid.Int32().Draw(t, "priority")
			pods[i].Spec.Priority = &p
			if pods[i].Status.Phase = rapid.SampledFrom([]v1.PodPhase{"Pending", "Running", "Succeeded", "Failed"}).Draw(t, "phase"); rapid.Bool().Draw(t, "known") {
				start, end := metav1.Unix(1_750_000_000, 0), metav1.Unix(1_750_000_000+rapid.Int64Range(-5, 5_000_000).Draw(t, "ran"), 0)
				pods[i].Status.StartTime = &start
				pods[i].Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: end}}}}
			}
		}
		list := podlist.Of(pods, podlist.Options{Slots: rapid.Int64Range(1, 1000).Draw(t, "slots"), WithoutGPUs: rapid.Bool().Draw(t, "without")})
		left := 0
		for _, c := range list.Left {
			left += c.Pods
		}
		if list.Len()+left != len(pods) {
			t.Fatalf("%d pods, %d in the list and %d left out: %v", len(pods), list.Len(), left, list.Left)
		}
		if list.Len() == 0 {
			return
		}
		var text strings.Builder
		if err := list.Write(&text); err != nil {
			t.Fatal(err)
		}
		if got, err := traces.Read(strings.NewReader(text.String()), "jobs.csv"); err != nil || len(got.Jobs) != list.Len() {
			t.Fatalf("%v\n%s", err, text.String())
		}
	})
}

// A pod holds what its containers hold together at most: init containers run one after the other, sidecars beside all that follow.
func TestGPUsOfPhases(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	c := func(gpus string, policy *v1.ContainerRestartPolicy) v1.Container {
		return v1.Container{Name: gpus, RestartPolicy: policy, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": resource.MustParse(gpus)}}}
	}
	for want, spec := range map[string]v1.PodSpec{
		"3": {Containers: []v1.Container{c("1", nil), c("2", nil)}},
		"4": {InitContainers: []v1.Container{c("4", nil), c("3", nil)}, Containers: []v1.Container{c("2", nil)}},
		"5": {InitContainers: []v1.Container{c("1", &always), c("4", nil)}, Containers: []v1.Container{c("2", nil)}},
		"6": {InitContainers: []v1.Container{c("4", &always)}, Containers: []v1.Container{c("2", nil)}},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: metav1.NewTime(time.Unix(1_750_000_000, 0))}, Spec: spec}
		var text strings.Builder
		list := podlist.Of([]*v1.Pod{pod}, podlist.Options{Slots: 10})
		if err := list.Write(&text); err != nil || !strings.Contains(text.String(), "Z,,"+want+",") {
			t.Errorf("want %s GPUs: %s, %v, %v", want, text.String(), list.Left, err)
		}
	}
}
