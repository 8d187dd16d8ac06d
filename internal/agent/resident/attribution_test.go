package resident

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
)

const (
	someUID  = "2c48913c-b29f-11e7-9350-020968147796"
	slashed  = "2c48913c_b29f_11e7_9350_020968147796"
	staticID = "0123456789abcdef0123456789abcdef" // the UID of a static pod
	main64   = "aa64b1a7c1d2e3f405162738495a6b7c8d9e0f1a2b3c4d5e6f708192a3b4c5d6"
)

func tenantsOf(pods ...*v1.Pod) map[types.UID]*podsource.Tenant {
	m := map[types.UID]*podsource.Tenant{}
	for _, pod := range pods {
		m[pod.UID] = podsource.NewTenant(pod)
	}
	return m
}

// withContainer returns a pod that runs one container with an ID.
func withContainer(uid, id string) *v1.Pod {
	pod := fixture.Unplaced("p", fixture.App(fixture.G0, 3))
	pod.UID = types.UID(uid)
	pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", ContainerID: "containerd://" + id}}
	return pod
}

func TestCgroupsNameTheirContainer(t *testing.T) {
	cases := map[string]struct{ cgroup, uid, container string }{
		"v2, systemd, burstable":        {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slashed + ".slice/cri-containerd-" + main64 + ".scope\n", someUID, "main"},
		"v2, systemd, guaranteed":       {"0::/kubepods.slice/kubepods-pod" + slashed + ".slice/cri-containerd-" + main64 + ".scope\n", someUID, "main"},
		"v2, systemd, CRI-O":            {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + slashed + ".slice/crio-" + main64 + ".scope/container\n", someUID, "main"},
		"v2, cgroupfs, guaranteed":      {"0::/kubepods/pod" + someUID + "/" + main64 + "\n", someUID, "main"},
		"v2, cgroupfs, burstable":       {"0::/kubepods/burstable/pod" + someUID + "/" + main64 + "\n", someUID, "main"},
		"v2, a cgroup in the container": {"0::/kubepods/burstable/pod" + someUID + "/" + main64 + "/workers/1\n", someUID, "main"},
		"v1, cgroupfs":                  {"12:pids:/kubepods/burstable/pod" + someUID + "/" + main64 + "\n1:name=systemd:/kubepods/burstable/pod" + someUID + "/" + main64 + "\n0::/\n", someUID, "main"},
		"v1, systemd":                   {"4:memory:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + slashed + ".slice/docker-" + main64 + ".scope\n", someUID, "main"},
		"v1, some controllers only":     {"9:name=systemd:/\n4:memory:/kubepods/pod" + someUID + "/" + main64 + "\n0::/\n", someUID, "main"},
		"systemd names, cgroupfs":       {"0::/system.slice/containerd.service/kubepods-burstable-pod" + slashed + ".slice:cri-containerd:" + main64 + "\n", someUID, "main"},
		"from a cgroup namespace":       {"0::/../../pod" + someUID + "/" + main64 + "\n", someUID, "main"},
		"from one, systemd":             {"0::/../../kubepods-burstable-pod" + slashed + ".slice/cri-containerd-" + main64 + ".scope\n", someUID, "main"},
		"kubelet in a container":        {"0::/docker/5de4/kubelet/kubepods/burstable/pod" + someUID + "/" + main64 + "\n", someUID, "main"},
		"kubelet under another root":    {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + slashed + ".slice/cri-containerd-" + main64 + ".scope\n", someUID, "main"},
		"static pod":                    {"0::/kubepods/burstable/pod" + staticID + "/" + main64 + "\n", staticID, "main"},
		"container not in the status":   {"0::/kubepods/pod" + someUID + "/" + strings.Repeat("f", 64) + "\n", someUID, ""},
		"pod alone":                     {"0::/kubepods/pod" + someUID + "\n", someUID, ""},
		"cluster in a pod, the outer":   {"0::/kubepods/pod" + someUID + "/" + main64 + "/kubepods/podffffffff/" + strings.Repeat("e", 64) + "\n", someUID, "main"},
		"cluster in a pod, the inner":   {"0::/kubepods/podffffffff/" + strings.Repeat("e", 64) + "/kubepods/pod" + someUID + "/" + main64 + "\n", someUID, "main"},
		"host":                          {"0::/system.slice/nvidia-persistenced.service\n", "", ""},
		"host, root":                    {"0::/\n", "", ""},
		"another pod":                   {"0::/kubepods/podffffffff-b29f-11e7-9350-020968147796/" + main64 + "\n", "", ""},
		"nearly a pod":                  {"0::/kubepods/pod/" + main64 + "\n0::/pods" + someUID + "\n", "", ""},
		"not a cgroup file":             {"kubepods/pod" + someUID + "\n", "", ""},
	}
	pods := tenantsOf(withContainer(someUID, main64), withContainer(staticID, main64))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			fixture.WriteProcess(t, proc, 77, "4711", c.cgroup)
			got, ok := NewAttribution(proc).Owner(77, pods)
			if want := (owner{types.UID(c.uid), c.container}); got != want || ok != (c.uid != "") {
				t.Errorf("owner %+v (%v), want %+v", got, ok, want)
			}
		})
	}
}

func TestEndedProcessHasNoOwner(t *testing.T) {
	if o, ok := NewAttribution(t.TempDir()).Owner(77, tenantsOf(withContainer(someUID, main64))); ok {
		t.Errorf("owner %+v of a process that is not there", o)
	}
}

// A cgroup is read once for a process, and again for the next one with its PID.
func TestPIDsAreGivenAgain(t *testing.T) {
	proc := t.TempDir()
	a := NewAttribution(proc)
	pods := tenantsOf(withContainer(someUID, main64), withContainer(staticID, main64))
	fixture.WriteProcess(t, proc, 77, "100", "0::/kubepods/pod"+someUID+"/"+main64+"\n")
	first, _ := a.Owner(77, pods)
	fixture.WriteProcess(t, proc, 77, "100", "0::/kubepods/pod"+staticID+"/"+main64+"\n")
	same, _ := a.Owner(77, pods)
	fixture.WriteProcess(t, proc, 77, "200", "0::/kubepods/pod"+staticID+"/"+main64+"\n")
	next, _ := a.Owner(77, pods)
	if first.UID != someUID || same.UID != someUID || next.UID != staticID {
		t.Errorf("owners %s, %s, %s: want the cgroup to be read for each process once", first.UID, same.UID, next.UID)
	}
}

func TestEndedProcessesAreForgotten(t *testing.T) {
	proc := t.TempDir()
	a := NewAttribution(proc)
	for pid := range manyProcesses {
		fixture.WriteProcess(t, proc, pid+1, "1", "0::/\n")
		a.Owner(pid+1, nil)
	}
	for pid := range manyProcesses / 2 {
		if err := os.RemoveAll(filepath.Join(proc, fmt.Sprint(pid+1))); err != nil {
			t.Fatal(err)
		}
	}
	a.Forget()
	if len(a.known) != manyProcesses/2 {
		t.Errorf("%d processes are known, want the %d that run", len(a.known), manyProcesses/2)
	}
}

// The status of a restarted container lags behind, and two pods of one node never share an ID.
func TestInitContainersAreContainersToo(t *testing.T) {
	pod := withContainer(someUID, main64)
	pod.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "warm", ContainerID: "cri-o://" + strings.Repeat("b", 64)}}
	if got := containerName(pod, strings.Repeat("b", 64)); got != "warm" {
		t.Errorf("container %q, want warm", got)
	}
	if got := containerName(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u"}}, main64); got != "" {
		t.Errorf("container %q of a pod without a status", got)
	}
}
