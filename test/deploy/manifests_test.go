package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/test/must"
)

// manifests decodes the built-in objects of deploy/ strictly: a misspelt field fails.
func manifests(t *testing.T) []runtime.Object {
	t.Helper()
	raw, err := render("deploy")
	must.OK(t, err)
	return decode(t, raw)
}

func decode(t *testing.T, raw []byte) []runtime.Object {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var objects []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		must.OK(t, err)
		object, _, err := decoder.Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) { // the CRD, which the API server checks
			continue
		}
		if err != nil {
			t.Fatalf("decode: %v\n%s", err, document)
		}
		objects = append(objects, object)
	}
}

// podSpecs returns what deploy/ runs, by name.
func podSpecs(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	specs := map[string]corev1.PodSpec{}
	for _, object := range manifests(t) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			specs[o.Name] = o.Spec.Template.Spec
		case *appsv1.DaemonSet:
			specs[o.Name] = o.Spec.Template.Spec
		}
	}
	if len(specs) != 5 {
		t.Fatalf("deploy/ runs %d workloads, want the scheduler, the controller, the activator, the agent and MPS", len(specs))
	}
	return specs
}

func TestContainersAreConfined(t *testing.T) {
	for name, spec := range podSpecs(t) {
		if p := spec.SecurityContext.SeccompProfile; p == nil || p.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: seccomp profile %v", name, p)
		}
		for _, c := range spec.Containers {
			s := c.SecurityContext
			if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || s.Privileged != nil || len(s.Capabilities.Add) > 0 ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s/%s: security context %v", name, c.Name, s)
			}
			if strings.Contains(c.Image, "/") {
				t.Errorf("%s/%s: image %s names a registry", name, c.Name, c.Image)
			}
			if name == "tandem-mps" {
				continue // see below
			}
			if c.LivenessProbe == nil || c.ReadinessProbe == nil {
				t.Errorf("%s/%s: no probes", name, c.Name)
			}
		}
	}
}

// The manifest has nothing that ends the container of MPS, since its end ends the GPU work of a node.
func TestNothingEndsMPS(t *testing.T) {
	for _, object := range manifests(t) {
		set, ok := object.(*appsv1.DaemonSet)
		if !ok || set.Name != "tandem-mps" {
			continue
		}
		spec := set.Spec.Template.Spec
		c := spec.Containers[0]
		if set.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
			t.Errorf("an apply replaces it: %v", set.Spec.UpdateStrategy)
		}
		if c.LivenessProbe != nil || len(c.Resources.Limits) > 0 || len(spec.Containers) != 1 {
			t.Errorf("a probe or a limit ends it: %v", c)
		}
		if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
			t.Error("it has a token")
		}
		return
	}
	t.Error("deploy/ does not run tandem-mps")
}

// The agent reads the environment of MPS daemons to prove whose they are, which the kernel allows only to a process that
// has all of their capabilities (ptrace(2)); it sees them only in the host's process IDs, and finds their sockets and
// memory only in the same folders of the host.
func TestAgentReachesMPS(t *testing.T) {
	specs := podSpecs(t)
	agent, mps := specs["tandem-agent"], specs["tandem-mps"]
	if !agent.HostPID || !mps.HostPID {
		t.Error("processes are not those of the host")
	}
	for _, c := range mps.Containers[0].SecurityContext.Capabilities.Add {
		if !slices.Contains(agent.Containers[0].SecurityContext.Capabilities.Add, c) {
			t.Errorf("MPS has %s, the agent has not", c)
		}
	}
	if *agent.Containers[0].SecurityContext.RunAsUser != *mps.Containers[0].SecurityContext.RunAsUser {
		t.Error("they run as different users")
	}
	if diff := cmp.Diff(agent.NodeSelector, mps.NodeSelector); diff != "" {
		t.Errorf("they run on different nodes:\n%s", diff)
	}
	ours := hostMounts(agent)
	for path, folder := range hostMounts(mps) {
		if ours[path] != folder {
			t.Errorf("%s is %q of the host to MPS and %q to the agent", path, folder, ours[path])
		}
	}
	if len(hostMounts(mps)) != 2 {
		t.Errorf("MPS has the folders %v of the host, want its own and shared memory", hostMounts(mps))
	}
}

// Before the daemons start, a container that ends mounts the shared memory with a size; it alone is privileged, and its
// mount reaches both pods.
func TestSharedMemoryIsMountedWithASize(t *testing.T) {
	specs := podSpecs(t)
	agent, mps := specs["tandem-agent"], specs["tandem-mps"]
	if len(agent.InitContainers) != 0 || len(mps.InitContainers) != 1 {
		t.Fatalf("%d and %d containers run before", len(agent.InitContainers), len(mps.InitContainers))
	}
	mounter := mps.InitContainers[0]
	if diff := cmp.Diff([]string{"mount-shm", "--dir=/host/dev/shm/tandem", "--size=10%"}, mounter.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	want := []corev1.VolumeMount{{Name: "host-shm", MountPath: "/host/dev/shm", MountPropagation: ptr.To(corev1.MountPropagationBidirectional)}}
	if diff := cmp.Diff(want, mounter.VolumeMounts); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	for _, spec := range []corev1.PodSpec{agent, mps} {
		c := spec.Containers[0]
		if p := c.SecurityContext.Privileged; p != nil && *p {
			t.Errorf("%s is privileged", c.Name)
		}
		at := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/dev/shm" })
		if p := c.VolumeMounts[at].MountPropagation; p == nil || *p != corev1.MountPropagationHostToContainer {
			t.Errorf("%s does not see a tmpfs that is mounted after it has started", c.Name)
		}
	}
}

// hostMounts returns the folders of the host by where the first container sees them.
func hostMounts(spec corev1.PodSpec) map[string]string {
	host := map[string]string{}
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			host[volume.Name] = volume.HostPath.Path
		}
	}
	mounts := map[string]string{}
	for _, mount := range spec.Containers[0].VolumeMounts {
		if path, ok := host[mount.Name]; ok {
			mounts[mount.MountPath] = path
		}
	}
	return mounts
}

// The names of the ConfigMaps are generated: the volumes that mount them must follow.
func TestConfigMapsExist(t *testing.T) {
	var maps []string
	for _, object := range manifests(t) {
		if m, ok := object.(*corev1.ConfigMap); ok {
			maps = append(maps, m.Name)
		}
	}
	for name, spec := range podSpecs(t) {
		if name == "tandem-mps" || name == "tandem-activator" {
			continue // they have flags only
		}
		mounted := 0
		for _, volume := range spec.Volumes {
			if volume.ConfigMap == nil {
				continue
			}
			mounted++
			if !slices.Contains(maps, volume.ConfigMap.Name) {
				t.Errorf("%s mounts ConfigMap %s, there are %v", name, volume.ConfigMap.Name, maps)
			}
		}
		if mounted != 1 {
			t.Errorf("%s mounts %d ConfigMaps, want its configuration, or that of the scheduler for the controller", name, mounted)
		}
	}
}

// The guide names every folder of the host that the pods see.
func TestGuideListsTheFolders(t *testing.T) {
	specs := podSpecs(t)
	words := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(guide(t)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " folders of the host, ") {
			continue
		}
		rows++
		for i, name := range []string{"tandem-agent", "tandem-mps"} {
			var want, got []string
			for _, word := range words.FindAllStringSubmatch(cells[i+2], -1) {
				want = append(want, word[1])
			}
			readOnly := strings.HasSuffix(strings.TrimSpace(cells[1]), "read-only")
			for path, folder := range hostMounts(specs[name]) {
				mounts := specs[name].Containers[0].VolumeMounts
				j := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == path })
				if mounts[j].ReadOnly == readOnly {
					got = append(got, folder)
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s,%s: the guide (-), deploy/ (+):\n%s", name, cells[1], diff)
			}
		}
	}
	if rows != 2 {
		t.Errorf("the guide has %d rows of folders, want 2", rows)
	}
}
