package deploy

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Ephemeral containers join a running pod.
func TestEphemeralContainers(t *testing.T) {
	type debugger = corev1.EphemeralContainerCommon
	adds := func(name corev1.Capability) func(*debugger) {
		return func(c *debugger) {
			c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{name}}}
		}
	}
	sets := func(name string) func(*debugger) {
		return func(c *debugger) { c.Env = []corev1.EnvVar{{Name: name, Value: "x"}} }
	}
	mounts := func(path string) func(*debugger) {
		return func(c *debugger) { c.VolumeMounts = []corev1.VolumeMount{{Name: "empty", MountPath: path}} }
	}
	tests := []struct {
		name   string
		change func(*debugger)
		want   []string // none where it is legal
	}{
		{"limit raised from inside", sets("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), []string{byPods, "spec.ephemeralContainers[0].env", "remove it from env"}},
		{"other devices", sets("NVIDIA_VISIBLE_DEVICES"), []string{byPods, "spec.ephemeralContainers[0].env"}},
		{"another pipe directory", mounts("/tmp/nvidia-mps"), []string{byPods, "spec.ephemeralContainers[0].volumeMounts[0].mountPath"}},
		{"privileged", func(c *debugger) { c.SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)} },
			[]string{byHost, "spec.ephemeralContainers[0].securityContext.privileged"}},
		{"SYS_PTRACE", adds("SYS_PTRACE"), []string{byHost, "spec.ephemeralContainers[0].securityContext.capabilities.add SYS_PTRACE", "kubectl debug with --profile=baseline adds none"}},
		{"all capabilities", adds("ALL"), []string{byHost, "capabilities.add ALL"}},
		{"NET_ADMIN", adds("NET_ADMIN"), nil},
		{"ordinary variable", sets("TERM"), nil},
		{"ordinary mount", mounts("/mnt"), nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := client(t.Context(), t, jane)
			for _, p := range []*corev1.Pod{pod("debugged"), plainPod()} {
				p.Spec.Volumes = []corev1.Volume{{Name: "empty"}}
				attacked := len(p.Spec.Containers[0].Resources.Limits) > 0 && test.want != nil
				p = create(t.Context(), t, c, p)
				err := debug(t.Context(), c, p, test.change)
				if attacked {
					wantRefusal(t, err, test.want...)
				} else if err != nil {
					t.Errorf("vGPUs %v: %v", p.Spec.Containers[0].Resources.Limits, err)
				}
			}
		})
	}
}

// debug adds an ephemeral container to a pod.
func debug(ctx context.Context, c kubernetes.Interface, p *corev1.Pod, change func(*corev1.EphemeralContainerCommon)) error {
	container := corev1.EphemeralContainerCommon{
		Name: "debug", Image: "image", ImagePullPolicy: corev1.PullNever, TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	change(&container)
	p = p.DeepCopy()
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: container})
	_, err := c.CoreV1().Pods(p.Namespace).UpdateEphemeralContainers(ctx, p.Name, p, metav1.UpdateOptions{})
	return err
}
