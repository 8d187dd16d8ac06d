package deviceplugin

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/tandem-gpu/tandem/internal/cdi"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// kubelet is a scripted kubelet: it speaks the real protocols over real sockets and keeps the real checkpoint format.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podsapi.UnimplementedPodsServer
	podresources.UnimplementedPodResourcesListerServer

	t       *testing.T
	dir     string
	servers []*grpc.Server

	mu            sync.Mutex
	pods          map[string]*v1.Pod
	entries       []checkpoint.PodDevicesEntry
	devices       []*pluginapi.Device
	updates       int
	conn          *grpc.ClientConn
	registrations []string
	options       *pluginapi.DevicePluginOptions
}

func newKubelet(t *testing.T, dir string) *kubelet {
	t.Helper()
	k := &kubelet{t: t, dir: dir, pods: map[string]*v1.Pod{}}
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *kubelet) pluginDir() string      { return filepath.Join(k.dir, "dp") }
func (k *kubelet) podsSocket() string     { return filepath.Join(k.dir, "pods.sock") }
func (k *kubelet) placesSocket() string   { return filepath.Join(k.dir, "res.sock") }
func (k *kubelet) checkpointPath() string { return filepath.Join(k.pluginDir(), kubeletCheckpoint) }

// start removes all sockets of the folder, as the kubelet does, and serves.
func (k *kubelet) start() {
	k.t.Helper()
	if err := os.MkdirAll(k.pluginDir(), 0o750); err != nil {
		k.t.Fatal(err)
	}
	stale, _ := filepath.Glob(filepath.Join(k.pluginDir(), "*.sock"))
	for _, path := range stale {
		_ = os.Remove(path)
	}
	k.serve(k.podsSocket(), func(s *grpc.Server) { podsapi.RegisterPodsServer(s, k) })
	k.serve(k.placesSocket(), func(s *grpc.Server) { podresources.RegisterPodResourcesListerServer(s, k) })
	k.serve(filepath.Join(k.pluginDir(), kubeletSocket), func(s *grpc.Server) { pluginapi.RegisterRegistrationServer(s, k) })
}

func (k *kubelet) serve(path string, register func(*grpc.Server)) {
	k.t.Helper()
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		k.t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	k.servers = append(k.servers, s)
	go func() { _ = s.Serve(l) }()
}

func (k *kubelet) stop() {
	for _, s := range k.servers {
		s.Stop()
	}
	k.servers = nil
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn != nil {
		_ = k.conn.Close()
		k.conn = nil
	}
	k.devices = nil
}

// Register dials back inside the call, as the kubelet does, and then watches the slots.
func (k *kubelet) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if r.ResourceName != v1alpha1.ResourceVGPU || r.Version != pluginapi.Version {
		return nil, status.Errorf(codes.InvalidArgument, "unexpected registration %v", r)
	}
	conn, err := grpc.NewClient("unix:"+filepath.Join(k.pluginDir(), r.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(conn)
	options, err := client.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conn, k.options = conn, options
	k.registrations = append(k.registrations, r.Endpoint)
	go k.watch(stream)
	return &pluginapi.Empty{}, nil
}

func (k *kubelet) watch(stream pluginapi.DevicePlugin_ListAndWatchClient) {
	for {
		list, err := stream.Recv()
		k.mu.Lock()
		if err != nil {
			k.devices = nil
			k.mu.Unlock()
			return
		}
		k.devices = list.Devices
		k.updates++
		k.mu.Unlock()
	}
}

func (k *kubelet) GetPod(_ context.Context, r *podsapi.GetPodRequest) (*podsapi.GetPodResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pod, ok := k.pods[r.PodUID]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "pod with UID %s not found", r.PodUID)
	}
	raw, err := pod.Marshal()
	return &podsapi.GetPodResponse{Pod: raw}, err
}

func (k *kubelet) ListPods(context.Context, *podsapi.ListPodsRequest) (*podsapi.ListPodsResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &podsapi.ListPodsResponse{}
	for _, uid := range sortedKeys(k.pods) {
		raw, err := k.pods[uid].Marshal()
		if err != nil {
			return nil, err
		}
		out.Pods = append(out.Pods, raw)
	}
	return out, nil
}

// List names app containers and sidecars only, and no UIDs, as the kubelet does.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &podresources.ListPodResourcesResponse{}
	for _, uid := range sortedKeys(k.pods) {
		pod := k.pods[uid]
		resources := &podresources.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for _, c := range pod.Spec.Containers {
			container := &podresources.ContainerResources{Name: c.Name}
			if e := k.entry(uid, c.Name); e != nil {
				container.Devices = []*podresources.ContainerDevices{{ResourceName: v1alpha1.ResourceVGPU, DeviceIds: slotsOf(e.DeviceIDs)}}
			}
			resources.Containers = append(resources.Containers, container)
		}
		out.PodResources = append(out.PodResources, resources)
	}
	return out, nil
}

func (k *kubelet) entry(uid, container string) *checkpoint.PodDevicesEntry {
	for i := range k.entries {
		if k.entries[i].PodUID == uid && k.entries[i].ContainerName == container {
			return &k.entries[i]
		}
	}
	return nil
}

func (k *kubelet) client() pluginapi.DevicePluginClient {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn == nil {
		k.t.Fatal("no plugin is registered")
	}
	return pluginapi.NewDevicePluginClient(k.conn)
}

func (k *kubelet) add(pods ...*v1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range pods {
		k.pods[string(pod.UID)] = pod.DeepCopy()
	}
}

func (k *kubelet) change(uid string, change func(*v1.Pod)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change(k.pods[uid])
}

// remove forgets the pod at once; its slots stay in the checkpoint until the next allocation.
func (k *kubelet) remove(uid string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.pods, uid)
}

// admit allocates for all containers of the pod in the kubelet's order: preferred slots where the plugin names free
// ones, init containers' slots again for later containers.
func (k *kubelet) admit(pod *v1.Pod) {
	k.t.Helper()
	k.add(pod)
	var reusable []string
	for _, c := range pod.Spec.InitContainers {
		ids := k.allocate(pod, c, reusable)
		if c.RestartPolicy == nil {
			reusable = slotSet(append(reusable, ids...))
			continue
		}
		reusable = slices.DeleteFunc(reusable, func(id string) bool { return slices.Contains(ids, id) })
	}
	for _, c := range pod.Spec.Containers {
		ids := k.allocate(pod, c, reusable)
		reusable = slices.DeleteFunc(reusable, func(id string) bool { return slices.Contains(ids, id) })
	}
}

func (k *kubelet) allocate(pod *v1.Pod, c v1.Container, reusable []string) []string {
	k.t.Helper()
	q, ok := c.Resources.Limits[v1alpha1.ResourceVGPU]
	if !ok {
		return nil
	}
	need := int(q.Value())
	ids := slices.Clone(reusable[:min(need, len(reusable))])
	if len(ids) < need {
		free := k.free()
		answer, err := k.client().GetPreferredAllocation(k.t.Context(), &pluginapi.PreferredAllocationRequest{
			ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
				AvailableDeviceIDs: append(slices.Clone(free), ids...), MustIncludeDeviceIDs: ids, AllocationSize: int32(need),
			}},
		})
		if err != nil {
			k.t.Fatal(err)
		}
		for _, id := range append(slices.Clone(answer.ContainerResponses[0].DeviceIDs), free...) {
			if len(ids) < need && slices.Contains(free, id) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) < need {
		k.t.Fatalf("pod %s, container %s: %d slots of %d are free", pod.Name, c.Name, len(ids), need)
	}
	k.give(pod, c.Name, ids)
	return ids
}

// give allocates these slots, whoever they were meant for.
func (k *kubelet) give(pod *v1.Pod, container string, ids []string) {
	k.t.Helper()
	k.add(pod)
	answer, err := k.client().Allocate(k.t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	if err != nil {
		k.t.Fatal(err)
	}
	raw, err := proto.Marshal(answer.ContainerResponses[0])
	if err != nil {
		k.t.Fatal(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entries = slices.DeleteFunc(k.entries, func(e checkpoint.PodDevicesEntry) bool { return k.pods[e.PodUID] == nil })
	k.entries = append(k.entries, checkpoint.PodDevicesEntry{
		PodUID: string(pod.UID), ContainerName: container, ResourceName: v1alpha1.ResourceVGPU,
		DeviceIDs: checkpoint.DevicesPerNUMA{0: slices.Clone(ids)}, AllocResp: raw,
	})
	k.writeCheckpoint()
}

func (k *kubelet) writeCheckpoint() {
	blob, err := checkpoint.New(k.entries, map[string][]string{v1alpha1.ResourceVGPU: {}}).MarshalCheckpoint()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(k.checkpointPath(), blob, 0o600); err != nil {
		k.t.Fatal(err)
	}
}

// free lists healthy slots that no pod of the node holds.
func (k *kubelet) free() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := map[string]bool{}
	for _, e := range k.entries {
		for _, id := range slotsOf(e.DeviceIDs) {
			held[id] = held[id] || k.pods[e.PodUID] != nil
		}
	}
	var free []string
	for _, d := range k.devices {
		if d.Health == pluginapi.Healthy && !held[d.ID] {
			free = append(free, d.ID)
		}
	}
	return free
}

// begin calls PreStartContainer as the kubelet does before it creates a container.
func (k *kubelet) begin(pod *v1.Pod, container string) error {
	k.t.Helper()
	k.mu.Lock()
	e := k.entry(string(pod.UID), container)
	k.mu.Unlock()
	if e == nil {
		k.t.Fatalf("pod %s, container %s holds no slots", pod.Name, container)
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), pluginapi.KubeletPreStartContainerRPCTimeoutInSecs*time.Second)
	defer cancel()
	_, err := k.client().PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: slotsOf(e.DeviceIDs)})
	return err
}

// cdiName returns the name that the runtime is told for a container.
func (k *kubelet) cdiName(pod *v1.Pod, container string) string {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entry(string(pod.UID), container)
	if e == nil {
		k.t.Fatalf("pod %s, container %s holds no slots", pod.Name, container)
	}
	var r pluginapi.ContainerAllocateResponse
	if err := proto.Unmarshal(e.AllocResp, &r); err != nil {
		k.t.Fatal(err)
	}
	if len(r.CdiDevices) != 1 || len(r.Envs)+len(r.Mounts)+len(r.Devices)+len(r.Annotations) != 0 {
		k.t.Fatalf("allocation %v, want one CDI name and nothing else", &r)
	}
	name, ok := cdi.ParseQualified(r.CdiDevices[0].Name)
	if !ok {
		k.t.Fatalf("allocation %v, want a name of kind %s", &r, v1alpha1.CDIKind)
	}
	return name
}

// watchedSlots returns the slots by health.
func (k *kubelet) watchedSlots() (healthy, unhealthy int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range k.devices {
		if d.Health == pluginapi.Healthy {
			healthy++
		} else {
			unhealthy++
		}
	}
	return healthy, unhealthy
}

func (k *kubelet) registered() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.registrations)
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var last error
	for time.Now().Before(deadline) {
		if last = holds(); last == nil {
			return
		}
		<-tick.C
	}
	t.Fatalf("%s: %v", what, last)
}

func (k *kubelet) awaitSlots(healthy, unhealthy int) {
	k.t.Helper()
	eventually(k.t, "slots", func() error {
		if h, u := k.watchedSlots(); h != healthy || u != unhealthy {
			return fmt.Errorf("the kubelet sees %d healthy and %d unhealthy slots, want %d and %d", h, u, healthy, unhealthy)
		}
		return nil
	})
}
