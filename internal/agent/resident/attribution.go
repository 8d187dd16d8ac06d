package resident

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/agent/podsource"
)

// Attribution finds the owner of a process: PID → cgroup → pod UID and container ID → container name.
//
// A cgroup counts only where the kubelet knows the pod. Attribution does not guess. Processes of the host and of ended
// pods have no owner. If the agent does not see the host's PIDs, no process has one.
type Attribution struct {
	// proc is the folder of the processes, /proc.
	proc string

	mu sync.Mutex
	// known holds the cgroup of each process, so that the agent reads it once.
	known map[int]process
}

// process is where a process runs. Start is its start time in ticks after boot: with the PID it names the process for
// good.
type process struct {
	start string
	// path is the cgroup as the kernel writes it, in parts.
	path []string
}

// owner is the container of a process. The container is "" where only the pod is known.
type owner struct {
	UID       types.UID
	Container string
}

// manyProcesses is the number of known processes at which Forget looks for ended ones. 8 GPUs with 60 clients each need
// fewer, so nodes at rest never look.
const manyProcesses = 512

// NewAttribution returns an attribution of the processes in a folder, /proc.
func NewAttribution(proc string) *Attribution {
	return &Attribution{proc: proc, known: map[int]process{}}
}

// Owner returns the container of a process, false where the process belongs to none of the pods.
func (a *Attribution) Owner(pid int, pods map[types.UID]*podsource.Tenant) (owner, bool) {
	path, err := a.cgroup(pid)
	if err != nil {
		return owner{}, false // it has ended, or is not ours to see
	}
	for i, part := range path {
		uid, id, ok := podPart(part)
		t := pods[uid]
		if !ok || t == nil {
			continue
		}
		if id == "" && i+1 < len(path) {
			id = containerID(path[i+1])
		}
		return owner{UID: uid, Container: containerName(t.Pod, id)}, true
	}
	return owner{}, false
}

// Forget drops processes that have ended, once there are many.
func (a *Attribution) Forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) < manyProcesses {
		return
	}
	for pid, p := range a.known {
		if start, err := a.start(pid); err != nil || start != p.start {
			delete(a.known, pid)
		}
	}
}

// cgroup returns the parts of the cgroup path that names a pod, or of the first one.
func (a *Attribution) cgroup(pid int) ([]string, error) {
	start, err := a.start(pid)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	p, ok := a.known[pid]
	a.mu.Unlock()
	if ok && p.start == start {
		return p.path, nil
	}
	raw, err := os.ReadFile(filepath.Join(a.proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("read cgroup of process %d: %w", pid, err)
	}
	p = process{start: start, path: podPath(string(raw))}
	a.mu.Lock()
	a.known[pid] = p
	a.mu.Unlock()
	return p.path, nil
}

// start reads when a process started: the 22nd field of its stat file, counted from behind the name, which may hold
// anything.
func (a *Attribution) start(pid int) (string, error) {
	raw, err := os.ReadFile(filepath.Join(a.proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", fmt.Errorf("read start of process %d: %w", pid, err)
	}
	const afterName = 22 - 3 // the field behind the name is the third
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) <= afterName {
		return "", fmt.Errorf("read start of process %d: stat has %d fields", pid, len(fields))
	}
	return fields[afterName], nil
}

// podPath returns the parts of the first line of a cgroup file that names a pod; nil where none does. Lines are
// "<number>:<controllers>:<path>"; under cgroup v2 there is one, "0::<path>".
func podPath(file string) []string {
	for line := range strings.Lines(file) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(fields) < 3 {
			continue
		}
		path := strings.Split(fields[2], "/")
		if slices.ContainsFunc(path, func(part string) bool { _, _, ok := podPart(part); return ok }) {
			return path
		}
	}
	return nil
}

// podPart reads a part of a cgroup path that names a pod, in the forms of the kubelet:
//
//	pod<UID>                                                   cgroupfs
//	kubepods-burstable-pod<UID with _ for ->.slice             systemd
//	kubepods-burstable-pod<UID…>.slice:cri-containerd:<ID>     systemd names under a cgroupfs runtime; with the container
//
// Any cgroup may have such a name: the caller checks whether there is such a pod. The beginning of the path does not
// count: inside of a cgroup namespace the path begins with "/..".
func podPart(part string) (uid types.UID, container string, ok bool) {
	if rest, found := strings.CutPrefix(part, "pod"); found && rest != "" {
		return types.UID(rest), "", true
	}
	slice, rest, nested := strings.Cut(part, ":")
	name, found := strings.CutSuffix(slice, ".slice")
	_, behind, ours := strings.Cut(name, "kubepods")
	_, escaped, named := strings.Cut(behind, "-pod")
	if !found || !ours || !named || escaped == "" {
		return "", "", false
	}
	if nested {
		container = rest[strings.LastIndexByte(rest, ':')+1:]
	}
	return types.UID(strings.ReplaceAll(escaped, "_", "-")), container, true
}

// containerID reads the part behind the pod's: "<ID>", "crio-<ID>" or, under systemd, "cri-containerd-<ID>.scope".
func containerID(part string) string {
	part = strings.TrimSuffix(part, ".scope")
	return part[strings.LastIndexByte(part, '-')+1:]
}

// containerName returns the container with the ID, "" where the pod's status names none: the kubelet writes it some
// time after the start.
func containerName(pod *v1.Pod, id string) string {
	if id == "" {
		return ""
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if _, have, ok := strings.Cut(c.ContainerID, "://"); ok && have == id {
				return c.Name
			}
		}
	}
	return ""
}
