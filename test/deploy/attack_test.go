package deploy

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The policies on pods with vGPUs, as their refusals name them.
const (
	byPods        = "ValidatingAdmissionPolicy 'tandem-pods'"
	byHost        = "ValidatingAdmissionPolicy 'tandem-pods-host'"
	byAnnotations = "ValidatingAdmissionPolicy 'tandem-pods-annotations'"
)

// hostAccess is the label that takes a namespace out of tandem-pods-host, with its value "allowed".
const hostAccess = v1alpha1.Domain + "/host-access"

// attack is a pod that would go past Tandem if it had vGPUs.
type attack struct {
	name   string
	change func(*corev1.Pod)
	policy string
	want   []string // the field, and what to do
}

func (a attack) on(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	a.change(p)
	return p
}

// plainPod is a pod without vGPUs.
func plainPod() *corev1.Pod {
	p := pod("plain")
	p.Spec = corev1.PodSpec{Containers: []corev1.Container{container("main")}}
	return p
}

func hostPath(path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		volume := corev1.Volume{Name: "host"}
		volume.HostPath = &corev1.HostPathVolumeSource{Path: path}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "first"}, volume)
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "host", MountPath: "/mnt"}}
	}
}

func mountAt(path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "empty"}}
		p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "empty", MountPath: path}}
	}
}

func annotation(key string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, "nvidia.com/gpu=all") }
}

func capability(names ...corev1.Capability) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: names}}
	}
}

// asInit makes what the change did to the first container happen to an init container.
func asInit(change func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		app := p.Spec.Containers
		p.Spec.Containers = []corev1.Container{container("init")}
		change(p)
		p.Spec.InitContainers, p.Spec.Containers = p.Spec.Containers, app
	}
}

// asSecond does the same with a second app container.
func asSecond(change func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		first := p.Spec.Containers[0]
		p.Spec.Containers = []corev1.Container{container("second")}
		change(p)
		p.Spec.Containers = append([]corev1.Container{first}, p.Spec.Containers...)
	}
}

func privileged(p *corev1.Pod) {
	p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
}

func asksFor(name corev1.ResourceName) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		r := &p.Spec.Containers[0].Resources
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[name] = resource.MustParse("1")
		if name == v1alpha1.ResourceMemory {
			r.Limits[name] = resource.MustParse("1Gi")
		}
	}
}

// closedPaths are spellings of folders that pods with vGPUs must not reach, and of what contains them.
var closedPaths = []string{
	"/", "//", "/.", "/dev", "/dev/", "//dev", "/./dev", "dev", "dev/nvidia0", "/dev/.", "/dev//nvidia0", "/dev/nvidia0", "/dev/nvidiactl",
	"/dev/nvidia-uvm", "/dev/nvidia-caps", "/dev/nvidia-caps/nvidia-cap1", "/dev/shm", "/dev/null",
	"/proc", "/proc/1/root", "/proc/1/root/dev/nvidia1", "/proc/driver/nvidia/capabilities", "/sys", "/sys/bus/pci/devices",
	"/run", "/run/tandem", "/run/tandem/mps/GPU-1/pipe", "/run/cdi", "/run/nvidia/driver", "/run/containerd/containerd.sock",
	"/var", "/var/run", "/var//run/", "/var/run/tandem", "/var/run/cdi", "/var/./run/cdi", "/var/run/docker.sock",
	"/etc", "/etc/cdi", "/etc/cdi/nvidia.yaml", "/tmp", "/tmp/", "/tmp/nvidia-mps", "/tmp/nvidia-mps/control",
	"/var/lib", "/var/lib/kubelet", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pods", "/var/lib/tandem",
}

// otherPaths look harmless: a tenant may have put a link there.
var otherPaths = []string{
	"/data", "/data/dev", "/devices", "/dev-data", "/developer/nvidia0", "/process", "/var/log", "/var/lib/data", "/var/lib/kubelet-data",
	"/etc/ssl", "/tmp/work", "/home/jane", "data", "/data/link/dev",
}

// attacks is every row of the table in docs/guides/security.md that a user writes into a pod of its own.
func attacks() []attack {
	var list []attack
	add := func(policy, name string, change func(*corev1.Pod), want ...string) {
		list = append(list, attack{name: name, change: change, policy: policy, want: want})
	}
	for _, path := range slices.Concat(closedPaths, otherPaths) {
		add(byHost, "host path "+path, hostPath(path), "spec.volumes[1].hostPath.path "+path+":", "use a PersistentVolumeClaim", hostAccess)
	}
	add(byHost, "host path that no container mounts", func(p *corev1.Pod) {
		hostPath("/dev")(p)
		p.Spec.Containers[0].VolumeMounts = nil
	}, "spec.volumes[1].hostPath.path /dev:")
	add(byHost, "host path read-only, by subPath, of a type", func(p *corev1.Pod) {
		hostPath("/dev")(p)
		p.Spec.Volumes[1].HostPath.Type = ptr.To(corev1.HostPathDirectory)
		m := &p.Spec.Containers[0].VolumeMounts[0]
		m.ReadOnly, m.SubPath = true, "nvidia1"
	}, "spec.volumes[1].hostPath.path /dev:")
	add(byHost, "hostPID", func(p *corev1.Pod) { p.Spec.HostPID = true }, "spec.hostPID:", "remove it", hostAccess)
	add(byHost, "hostIPC", func(p *corev1.Pod) { p.Spec.HostIPC = true }, "spec.hostIPC:", "remove it", hostAccess)
	add(byHost, "privileged", privileged, "spec.containers[0].securityContext.privileged:", "set it to false", hostAccess)
	add(byHost, "privileged init container", asInit(privileged), "spec.initContainers[0].securityContext.privileged:")
	add(byHost, "privileged container without vGPUs", asSecond(privileged), "spec.containers[1].securityContext.privileged:")
	for _, name := range []corev1.Capability{
		"ALL", "all", "SYS_ADMIN", "CAP_SYS_ADMIN", "sys_admin", "Cap_Sys_Admin", "SYS_PTRACE", "SYS_RAWIO", "SYS_MODULE", "DAC_READ_SEARCH", "BPF",
		"SYS_ADMIN ", " SYS_ADMIN", "SYS_CAP_ADMIN", "CAP_CAP_SYS_ADMIN", "PERFMON", "CHECKPOINT_RESTORE", "SYSLOG", "MAC_ADMIN", "NET_RAW ",
		"cap_all", "LINUX_IMMUTABLE", "NO_SUCH",
	} {
		add(byHost, "capability "+string(name), capability("NET_ADMIN", name),
			"spec.containers[0].securityContext.capabilities.add "+string(name)+":", "remove it", hostAccess)
	}
	add(byHost, "capability of an init container", asInit(capability("SYS_ADMIN")), "spec.initContainers[0].securityContext.capabilities.add")
	for _, key := range []string{
		"cdi.k8s.io/x", "cdi.k8s.io/nvidia-device-plugin_0", "cdi.nri.io/pod", "cdi.nri.io/container.main", "devices.nri.io",
		"devices.nri.io/container.main", "mounts.nri.io/pod", "devices.noderesource.dev/pod", "mounts.noderesource.dev",
		"nvidia.cdi.k8s.io/container.main", "nvidia.cdi.k8s.io/pod", "cdi-devices.noderesource.dev/container.main", "cdi-devices.nri.io/pod", "devices.gke.io/container.main",
		"io.kubernetes.cri-o.Devices", "another.nri.io", "x-cdi.k8s.io/y",
	} {
		add(byAnnotations, "annotation "+key, annotation(key), "metadata.annotations "+key+":", "remove this annotation")
	}
	for _, path := range []string{
		"/tmp/nvidia-mps", "/tmp/nvidia-mps/", "/tmp//nvidia-mps", "/tmp/nvidia-mps/control", "tmp/nvidia-mps", "/tmp/./nvidia-mps",
		"/tmp/x/../nvidia-mps", "/..", "/var/run/nvidia-container-devices/all", "/run/nvidia-container-devices",
		"/tmp/nvidia-mps/.", "/proc/self/root/tmp/nvidia-mps", "nvidia-mps",
	} {
		add(byPods, "mount at "+path, mountAt(path), "spec.containers[0].volumeMounts[0].mountPath "+path+":", "choose another mountPath")
	}
	add(byPods, "mount in an init container", asInit(mountAt("/tmp/nvidia-mps")), "spec.initContainers[0].volumeMounts[0].mountPath")
	for _, name := range []corev1.ResourceName{
		"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb", "amd.com/gpu", "gpu.intel.com/i915", "habana.ai/gaudi", "aws.amazon.com/neuron",
		"example.com/nvidia.com", "smarter-devices/nvidia0", "deviceclass.resource.kubernetes.io/gpu.nvidia.com", "tandem-gpu.io/vgpus",
		"volcano.sh/vgpu-number",
	} {
		add(byPods, "resource "+string(name), asksFor(name), "spec.containers[0].resources.limits "+string(name)+":", "remove this resource")
	}
	add(byPods, "resource of another container", asSecond(asksFor("nvidia.com/gpu")), "spec.containers[1].resources.limits nvidia.com/gpu:")
	add(byPods, "resource of an init container", asInit(asksFor("nvidia.com/gpu")), "spec.initContainers[0].resources.limits nvidia.com/gpu:")
	return append(list, confinementAttacks()...)
}

var dryRun = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}

// Each attack is refused, whoever sends it, and the same pod without vGPUs is none of Tandem's business.
func TestAttacksAtCreation(t *testing.T) {
	for _, a := range attacks() {
		for _, who := range []account{admin, jane} {
			t.Run(a.name+"/"+string(who), func(t *testing.T) {
				pods := client(t.Context(), t, who).CoreV1().Pods(team)
				_, err := pods.Create(t.Context(), a.on(pod("attack")), dryRun)
				wantRefusal(t, err, append([]string{a.policy}, a.want...)...)
				memoryAlone := a.on(pod("attack"))
				delete(memoryAlone.Spec.Containers[0].Resources.Limits, v1alpha1.ResourceVGPU)
				asksFor(v1alpha1.ResourceMemory)(memoryAlone)
				_, err = pods.Create(t.Context(), memoryAlone, dryRun)
				wantRefusal(t, err, a.policy)
				initAlone := a.on(plainPod())
				initAlone.Spec.SchedulerName = v1alpha1.SchedulerName
				initAlone.Spec.InitContainers = append(initAlone.Spec.InitContainers, container("warmup", v1alpha1.ResourceVGPU, "3"))
				_, err = pods.Create(t.Context(), initAlone, dryRun)
				wantRefusal(t, err, a.policy)
				if _, err := pods.Create(t.Context(), a.on(plainPod()), dryRun); err != nil {
					t.Errorf("without vGPUs: %v", err)
				}
			})
		}
	}
}

// Several attacks in one pod are all named.
func TestAllFieldsAreNamed(t *testing.T) {
	p := pod("attack")
	capability("SYS_ADMIN", "SYS_PTRACE")(p)
	asSecond(capability("BPF"))(p)
	_, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), p, dryRun)
	wantRefusal(t, err, "spec.containers[0].securityContext.capabilities.add SYS_ADMIN", "add SYS_PTRACE", "spec.containers[1].securityContext.capabilities.add BPF")
}

// Two dots never reach a policy.
func TestPathsWithTwoDotsAreRefused(t *testing.T) {
	for _, path := range []string{"/data/../dev", "/..", "..", "/var/lib/../run/cdi"} {
		for _, p := range []*corev1.Pod{pod("attack"), plainPod()} {
			hostPath(path)(p)
			_, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), p, dryRun)
			wantRefusal(t, err, "spec.volumes[1].hostPath.path", "must not contain '..'")
		}
	}
}

// The policies let through what pods with vGPUs need every day.
func TestHarmlessPodsAreAccepted(t *testing.T) {
	tests := map[string]func(*corev1.Pod){
		"shared memory": func(p *corev1.Pod) {
			mountAt("/dev/shm")(p)
			p.Spec.Volumes[0].EmptyDir = &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}
		},
		"mount above the pipe directory":  mountAt("/tmp"),
		"mount beside the pipe directory": mountAt("/tmp/nvidia-mps-logs"),
		"mount with a like name":          mountAt("/data/nvidia-mps2"),
		"capabilities of networks":        capability("NET_ADMIN", "IPC_LOCK", "SYS_NICE", "SYS_RESOURCE"),
		"not privileged": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		},
		"host network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"other annotations": func(p *corev1.Pod) {
			for _, key := range []string{"cdi.example.com/x", "k8s.io/cdi", "xcdi.k8s.io/y", "unri.io/devices", "nri.io.example.com/devices", "example.com/nri.io"} {
				annotation(key)(p)
			}
		},
		"a network card":                 asksFor("rdma/hca_shared_devices_a"),
		"capabilities in other spelling": capability("CAP_NET_ADMIN", "net_raw", "cap_ipc_lock"),
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			p := pod("harmless")
			change(p)
			if _, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), p, dryRun); err != nil {
				t.Error(err)
			}
		})
	}
}

// The largest pods stay within what the API server lets a policy cost: one that costs more is refused.
func TestLargePodsAreAccepted(t *testing.T) {
	p := pod("large")
	for i := range 100 {
		v := corev1.Volume{Name: fmt.Sprint("v", i)}
		v.ConfigMap = &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "data"}}
		p.Spec.Volumes = append(p.Spec.Volumes, v)
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, fmt.Sprint("example.com/", i), "x")
	}
	for i := range 24 {
		amounts := []string{v1alpha1.ResourceVGPU, "1"}
		if i >= 15 { // sixteen may ask for vGPUs, the first one with them
			amounts = nil
		}
		c := container(fmt.Sprint("c", i), amounts...)
		c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "SYS_NICE", "IPC_LOCK"}}}
		for j := range 20 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("VARIABLE_", j), Value: "x"})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: fmt.Sprint("v", j), MountPath: fmt.Sprint("/mnt/", j)})
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	if _, err := client(t.Context(), t, jane).CoreV1().Pods(team).Create(t.Context(), p, dryRun); err != nil {
		t.Error(err)
	}
}
