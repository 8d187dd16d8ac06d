package fakekubelet

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// Container is the configuration of a container at its start.
type Container struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Name      string `json:"name"`
	// Kind is init, sidecar or app.
	Kind string `json:"kind"`
	// Number counts the containers of the node in the order of their start; Started is when.
	Number  int       `json:"number"`
	Started time.Time `json:"started"`
	// Slots are the device IDs that the kubelet gave to the plugin, sorted.
	Slots []string `json:"slots,omitempty"`
	// CDI are the names that the plugin answered to Allocate.
	CDI []string `json:"cdi,omitempty"`
	// Env is the whole environment, NAME=value, as the container would see it.
	Env []string `json:"env,omitempty"`
	// Devices are the paths of the device nodes inside the container.
	Devices []string `json:"devices,omitempty"`
	// Mounts are host:container.
	Mounts []string `json:"mounts,omitempty"`
}

// runtime stands for the container runtime: it keeps its containers, also over restarts of the kubelet.
type runtime struct {
	file  string
	specs *cdi.Cache

	mu         sync.Mutex
	containers map[string]Container // by UID/name
	number     int
}

func loadRuntime(file, cdiDir string) (*runtime, error) {
	specs, err := cdi.NewCache(cdi.WithSpecDirs(cdiDir), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("open CDI cache: %w", err)
	}
	r := &runtime{file: file, specs: specs, containers: map[string]Container{}}
	content, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read containers: %w", err)
	}
	if err := json.Unmarshal(content, &r.containers); err != nil {
		return nil, fmt.Errorf("read containers: %s: %w", file, err)
	}
	for _, c := range r.containers {
		r.number = max(r.number, c.Number)
	}
	return r, nil
}

func key(uid, name string) string { return uid + "/" + name }

// create starts a container: it builds its OCI spec from the plugins' answers, the pod's environment and the CDI specs,
// in the kubelet's and containerd's order.
func (r *runtime) create(pod *v1.Pod, c container, slots []string, answers []*pluginapi.ContainerAllocateResponse) error {
	spec := &oci.Spec{Process: &oci.Process{}}
	var names []string
	for _, answer := range answers {
		for _, name := range slices.Sorted(maps.Keys(answer.Envs)) {
			spec.Process.Env = append(spec.Process.Env, name+"="+answer.Envs[name])
		}
		for _, m := range answer.Mounts {
			spec.Mounts = append(spec.Mounts, oci.Mount{Source: m.HostPath, Destination: m.ContainerPath})
		}
		for _, d := range answer.CdiDevices {
			names = append(names, d.Name)
		}
	}
	for _, e := range c.Env {
		spec.Process.Env = append(spec.Process.Env, e.Name+"="+e.Value) // after the plugins': the pod wins
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.specs.Refresh(); err != nil {
		return fmt.Errorf("failed to refresh CDI specs: %w", err)
	}
	if _, err := r.specs.InjectDevices(spec, names...); err != nil {
		return fmt.Errorf("failed to create containerd container: CDI device injection failed: %w", err)
	}
	r.number++
	r.containers[key(string(pod.UID), c.Name)] = Container{
		Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID), Name: c.Name, Kind: string(c.kind),
		Number: r.number, Started: time.Now(),
		Slots: slots, CDI: names, Env: lastOfEach(spec.Process.Env), Devices: deviceNodes(spec), Mounts: mounts(spec),
	}
	return r.save()
}

// lastOfEach keeps of each variable the last value, which is the one that a process sees.
func lastOfEach(env []string) []string {
	last := map[string]string{}
	for _, e := range env {
		name := e
		for i := range e {
			if e[i] == '=' {
				name = e[:i]
				break
			}
		}
		last[name] = e
	}
	return slices.Sorted(maps.Values(last))
}

func deviceNodes(spec *oci.Spec) []string {
	var paths []string
	if spec.Linux != nil {
		for _, d := range spec.Linux.Devices {
			paths = append(paths, d.Path)
		}
	}
	return paths
}

func mounts(spec *oci.Spec) []string {
	all := make([]string, 0, len(spec.Mounts))
	for _, m := range spec.Mounts {
		all = append(all, m.Source+":"+m.Destination)
	}
	return all
}

// save writes the record. The caller holds mu.
func (r *runtime) save() error {
	content, err := json.MarshalIndent(r.containers, "", "  ")
	if err != nil {
		return fmt.Errorf("write containers: %w", err)
	}
	if err := os.WriteFile(r.file+".new", content, 0o600); err != nil {
		return fmt.Errorf("write containers: %w", err)
	}
	return os.Rename(r.file+".new", r.file)
}

func (r *runtime) has(uid, name string) bool {
	_, ok := r.started(uid, name)
	return ok
}

func (r *runtime) started(uid, name string) (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.containers[key(uid, name)]
	return c.Started, ok
}

// remove ends all containers of a pod.
func (r *runtime) remove(uid string) { r.filter(func(c Container) bool { return c.UID != uid }) }

// keep ends the containers of all other pods.
func (r *runtime) keep(uids sets.Set[string]) {
	r.filter(func(c Container) bool { return uids.Has(c.UID) })
}

func (r *runtime) filter(stays func(Container) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.containers)
	maps.DeleteFunc(r.containers, func(_ string, c Container) bool { return !stays(c) })
	if len(r.containers) == before {
		return
	}
	if err := r.save(); err != nil {
		panic(err) // the directory is the kubelet's own
	}
}

func (r *runtime) list() []Container {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.containers), func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Number, b.Number))
	})
}
