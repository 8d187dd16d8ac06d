package deploy

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// edit returns a legal vGPU pod after a change.
func edit(change func(*corev1.PodSpec)) *corev1.Pod {
	p := pod("edited")
	change(&p.Spec)
	return p
}

func TestVGPUPodsAreRefused(t *testing.T) {
	sets := func(name string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Containers[0].Env = []corev1.EnvVar{{Name: name, Value: "x"}} }
	}
	tests := []struct {
		name   string
		change func(*corev1.PodSpec)
		want   string
	}{
		{"default scheduler", func(s *corev1.PodSpec) { s.SchedulerName = "" }, "set spec.schedulerName to tandem-scheduler"},
		{"another scheduler", func(s *corev1.PodSpec) { s.SchedulerName = "kueue" }, "set spec.schedulerName to tandem-scheduler"},
		{"memory alone, default scheduler", func(s *corev1.PodSpec) {
			s.SchedulerName = ""
			s.Containers[0] = container("main", v1alpha1.ResourceMemory, "8Gi")
		}, "set spec.schedulerName"},
		{"init container, default scheduler", func(s *corev1.PodSpec) {
			s.SchedulerName = ""
			s.InitContainers = s.Containers
			s.Containers = []corev1.Container{container("app")}
		}, "set spec.schedulerName"},
		{"zero slots, default scheduler", func(s *corev1.PodSpec) {
			s.SchedulerName = ""
			s.Containers[0] = container("main", v1alpha1.ResourceVGPU, "0")
		}, "set spec.schedulerName"},
		{"node chosen by the user", func(s *corev1.PodSpec) { s.NodeName = "n1" }, "remove spec.nodeName"},
		{"MPS pipe directory", sets("CUDA_MPS_PIPE_DIRECTORY"), "spec.containers[0].env CUDA_MPS_PIPE_DIRECTORY: set by Tandem"},
		{"MPS thread percentage", sets("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "remove it from env"},
		{"MPS memory limit", sets("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "tandem-gpu.io/memory-limit"},
		{"MPS, unknown variable", sets("CUDA_MPS_ANYTHING"), "CUDA_MPS_ANYTHING"},
		{"NVIDIA devices", sets("NVIDIA_VISIBLE_DEVICES"), "NVIDIA_VISIBLE_DEVICES"},
		{"CUDA devices", sets("CUDA_VISIBLE_DEVICES"), "CUDA_VISIBLE_DEVICES"},
		{"MIG of all GPUs", sets("NVIDIA_MIG_CONFIG_DEVICES"), "NVIDIA_MIG_CONFIG_DEVICES"},
		{"second variable of a second container without vGPUs", func(s *corev1.PodSpec) {
			second := container("second")
			second.Env = []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
			s.Containers = append(s.Containers, second)
		}, "spec.containers[1].env NVIDIA_VISIBLE_DEVICES"},
		{"sidecar", func(s *corev1.PodSpec) {
			sidecar := container("sidecar")
			sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
			sidecar.Env = []corev1.EnvVar{{Name: "CUDA_MPS_LOG_DIRECTORY", Value: "/tmp"}}
			s.InitContainers = []corev1.Container{sidecar}
		}, "spec.initContainers[0].env CUDA_MPS_LOG_DIRECTORY"},
		{"value from the pod's own annotation", func(s *corev1.PodSpec) {
			s.Containers[0].Env = []corev1.EnvVar{{Name: "CUDA_VISIBLE_DEVICES", ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['x']"},
			}}}
		}, "CUDA_VISIBLE_DEVICES"},
	}
	for _, test := range tests {
		for _, who := range []account{admin, jane} {
			t.Run(test.name+"/"+string(who), func(t *testing.T) {
				_, err := client(t.Context(), t, who).CoreV1().Pods(team).
					Create(t.Context(), edit(test.change), metav1.CreateOptions{})
				wantRefusal(t, err, "ValidatingAdmissionPolicy 'tandem-pods'", test.want)
			})
		}
	}
}

func TestPodsAreAccepted(t *testing.T) {
	tests := []struct {
		name   string
		change func(*corev1.PodSpec)
	}{
		{"vGPU pod", func(*corev1.PodSpec) {}},
		{"vGPU pod with variables of its own", func(s *corev1.PodSpec) {
			s.Containers[0].Env = []corev1.EnvVar{
				{Name: "CUDA_LAUNCH_BLOCKING", Value: "1"}, {Name: "NVIDIA_DRIVER_CAPABILITIES", Value: "compute"},
				{Name: "MY_CUDA_MPS_", Value: "1"}, {Name: "cuda_visible_devices", Value: "0"},
			}
		}},
		{"vGPU pod for one node by affinity, as DaemonSets make them", func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{corev1.LabelHostname: "n1"}
		}},
		{"default scheduler without vGPUs", func(s *corev1.PodSpec) {
			*s = corev1.PodSpec{Containers: []corev1.Container{container("main", "cpu", "1")}}
		}},
		{"no vGPUs, node chosen", func(s *corev1.PodSpec) {
			*s = corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{container("main")}}
		}},
		{"no vGPUs, whole GPUs of another driver with its variables", func(s *corev1.PodSpec) {
			*s = corev1.PodSpec{Containers: []corev1.Container{container("main", "nvidia.com/gpu", "1")}}
			s.Containers[0].Env = []corev1.EnvVar{{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			create(t.Context(), t, client(t.Context(), t, jane), edit(test.change))
		})
	}
}

func TestDeviceClasses(t *testing.T) {
	class := func(resource string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{
			ObjectMeta: metav1.ObjectMeta{Name: "class"},
			Spec:       resourcev1.DeviceClassSpec{ExtendedResourceName: &resource},
		}
	}
	classes := client(t.Context(), t, admin).ResourceV1().DeviceClasses()
	for _, resource := range []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory, v1alpha1.Domain + "/other"} {
		_, err := classes.Create(t.Context(), class(resource), metav1.CreateOptions{})
		wantRefusal(t, err, "ValidatingAdmissionPolicy 'tandem-deviceclasses'", "another domain")
	}
	stored, err := classes.Create(t.Context(), class("example.com/gpu"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stored.Spec.ExtendedResourceName = ptr.To(v1alpha1.ResourceVGPU)
	_, err = classes.Update(t.Context(), stored, metav1.UpdateOptions{})
	wantRefusal(t, err, "ValidatingAdmissionPolicy 'tandem-deviceclasses'")
}
