package deviceplugin

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	fakepods "github.com/tandem-gpu/tandem/test/fakekubelet/podsapi"
	"github.com/tandem-gpu/tandem/test/must"
)

// kubelet is a scripted kubelet: it speaks the real protocols over real sockets and keeps the real checkpoint format.
type kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer

	t       *testing.T
	dir     string
	servers []*grpc.Server
	podsAPI *fakepods.Server
	// old: the kubelet does not serve the Pods API.
	old bool

	mu            sync.Mutex
	pods          map[string]*v1.Pod
	entries       []checkpoint.PodDevicesEntry
	devices       []*pluginapi.Device
	updates       int
	conn          *grpc.ClientConn
	registrations []string
	options       *pluginapi.DevicePluginOptions
}

// in starts the kubelet in a folder.
func (k *kubelet) in(t *testing.T, dir string) *kubelet {
	t.Helper()
	k.t, k.dir, k.pods = t, dir, map[string]*v1.Pod{}
	k.podsAPI = fakepods.New(k)
	k.start()
	t.Cleanup(k.stop)
	return k
}

func (k *kubelet) pluginDir() string    { return filepath.Join(k.dir, "dp") }
func (k *kubelet) podsSocket() string   { return filepath.Join(k.dir, "pods.sock") }
func (k *kubelet) placesSocket() string { return filepath.Join(k.dir, "res.sock") }
func (k *kubelet) checkpointPath() string {
	return filepath.Join(k.pluginDir(), allocation.KubeletCheckpoint)
}

// start removes all sockets of the folder, as the kubelet does, and serves.
func (k *kubelet) start() {
	k.t.Helper()
	must.OK(k.t, os.MkdirAll(k.pluginDir(), 0o750))
	stale, _ := filepath.Glob(filepath.Join(k.pluginDir(), "*.sock"))
	for _, path := range stale {
		_ = os.Remove(path)
	}
	if !k.old {
		k.serve(k.podsSocket(), func(s *grpc.Server) { podsapi.RegisterPodsServer(s, k.podsAPI) })
	}
	k.serve(k.placesSocket(), func(s *grpc.Server) { podresources.RegisterPodResourcesListerServer(s, k) })
	k.serve(filepath.Join(k.pluginDir(), kubeletSocket), func(s *grpc.Server) { pluginapi.RegisterRegistrationServer(s, k) })
}

func (k *kubelet) serve(path string, register func(*grpc.Server)) {
	k.t.Helper()
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	must.OK(k.t, err)
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
	go k.watch(conn, stream)
	return &pluginapi.Empty{}, nil
}

// watch follows the slots of one registration until the next one.
func (k *kubelet) watch(conn *grpc.ClientConn, stream pluginapi.DevicePlugin_ListAndWatchClient) {
	for {
		list, err := stream.Recv()
		k.mu.Lock()
		if k.conn != conn {
			k.mu.Unlock()
			return
		}
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

// All returns the pods for the Pods API.
func (k *kubelet) All() []*v1.Pod {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]*v1.Pod, 0, len(k.pods))
	for _, pod := range k.pods {
		out = append(out, pod.DeepCopy())
	}
	return out
}

// Synced is true: the scripted kubelet knows its pods when it serves.
func (k *kubelet) Synced() bool { return true }

// List names app containers and sidecars only, and no UIDs, as the kubelet does.
func (k *kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := &podresources.ListPodResourcesResponse{}
	for _, uid := range slices.Sorted(maps.Keys(k.pods)) {
		pod := k.pods[uid]
		resources := &podresources.PodResources{Name: pod.Name, Namespace: pod.Namespace}
		for _, c := range pod.Spec.Containers {
			container := &podresources.ContainerResources{Name: c.Name}
			if e := k.entry(uid, c.Name); e != nil {
				container.Devices = []*podresources.ContainerDevices{{ResourceName: v1alpha1.ResourceVGPU, DeviceIds: idsOf(e.DeviceIDs)}}
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

// add has the kubelet know pods, and tells so.
func (k *kubelet) add(pods ...*v1.Pod) {
	for _, pod := range pods {
		pod = pod.DeepCopy()
		k.mu.Lock()
		k.pods[string(pod.UID)] = pod
		k.mu.Unlock()
		k.podsAPI.Updated(pod, true)
	}
}

// change changes a pod and tells so.
func (k *kubelet) change(uid string, change func(*v1.Pod)) {
	k.mu.Lock()
	change(k.pods[uid])
	pod := k.pods[uid].DeepCopy()
	k.mu.Unlock()
	k.podsAPI.Updated(pod, false)
}

// remove forgets the pod at once; its slots stay in the checkpoint until the next allocation.
func (k *kubelet) remove(uid string) {
	k.mu.Lock()
	pod := k.pods[uid]
	delete(k.pods, uid)
	k.mu.Unlock()
	k.podsAPI.Removed(pod)
}

// told returns how often the plugin has told its slots.
func (k *kubelet) told() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.updates
}

// watched returns the slots that the plugin told last.
func (k *kubelet) watched() []*pluginapi.Device {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.devices
}

// watchedSlots returns the slots by health.
func (k *kubelet) watchedSlots() (healthy, unhealthy int) {
	for _, d := range k.watched() {
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

func (k *kubelet) awaitSlots(healthy, unhealthy int) {
	k.t.Helper()
	fixture.Eventually(k.t, "slots", func() error {
		if h, u := k.watchedSlots(); h != healthy || u != unhealthy {
			return fmt.Errorf("the kubelet sees %d healthy and %d unhealthy slots, want %d and %d", h, u, healthy, unhealthy)
		}
		return nil
	})
}
