package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"

	"github.com/tandem-gpu/tandem/test/fakekubelet/podsapi"
)

// Config of a Kubelet. Node, Dir and Client are required.
type Config struct {
	// Node is the name of the node.
	Node string
	// Dir holds the sockets, the checkpoint, the CDI specs and the runtime's record. The path must be short: a Unix
	// socket has at most 107 bytes.
	Dir string
	// Client has the identity of the node: "system:node:<Node>" in "system:nodes" where the API server checks that.
	Client kubernetes.Interface
	// Controller takes the not-ready taint from the new node, in place of the node controller: a kubelet may not under
	// NodeRestriction. Nil means Client.
	Controller kubernetes.Interface
	// NoPodsAPI leaves the Pods API out, as kubelets before 1.37 do.
	NoPodsAPI bool
	// Labels of the node.
	Labels map[string]string
	// Resources of the node beside those of plugins; empty: 64 CPUs, 512Gi, 110 pods.
	Resources v1.ResourceList
	// Address returns the address of a pod that runs, empty for none. Nil leaves all pods without one.
	Address func(*v1.Pod) string
}

// Paths are where a kubelet and its neighbours meet, under Config.Dir.
type Paths struct {
	DevicePlugins string // directory of kubelet.sock, kubelet_internal_checkpoint and the plugins' sockets
	PodResources  string // socket
	PodsAPI       string // socket
	CDI           string // directory of CDI specs
	runtime       string // file
}

// PathsIn returns the paths under a directory.
func PathsIn(dir string) Paths {
	return Paths{
		DevicePlugins: filepath.Join(dir, "device-plugins"),
		PodResources:  filepath.Join(dir, "pod-resources", "kubelet.sock"),
		PodsAPI:       filepath.Join(dir, "pods-api", "pods-api.sock"),
		CDI:           filepath.Join(dir, "cdi"),
		runtime:       filepath.Join(dir, "containers.json"),
	}
}

// Kubelet plays the kubelet of one node.
type Kubelet struct {
	config  Config
	paths   Paths
	pods    *podSet
	podsAPI *podsapi.Server
	// ended are the pods with a confirmed deletion that the API server still has. Only handle touches it.
	ended   map[types.UID]bool
	devices *devices
	runtime *runtime
	// loaded is runtime, for callers that do not wait until Run has read it.
	loaded   atomic.Pointer[runtime]
	recorder record.EventRecorder
	// dirty says that the node's status is out of date.
	dirty chan struct{}
}

// New returns a kubelet; Run starts it.
func New(config Config) *Kubelet {
	if config.Controller == nil {
		config.Controller = config.Client
	}
	pods := newPodSet()
	return &Kubelet{
		config:  config,
		paths:   PathsIn(config.Dir),
		pods:    pods,
		podsAPI: podsapi.New(pods),
		ended:   map[types.UID]bool{},
		dirty:   make(chan struct{}, 1),
	}
}

// Run plays the kubelet until ctx ends. The state of an earlier one in the same directory continues.
func (k *Kubelet) Run(ctx context.Context) error {
	if err := k.load(); err != nil {
		return fmt.Errorf("run kubelet of %s: %w", k.config.Node, err)
	}
	if err := k.register(ctx); err != nil {
		return fmt.Errorf("run kubelet of %s: %w", k.config.Node, err)
	}
	events := record.NewBroadcaster(record.WithContext(ctx))
	defer events.Shutdown()
	events.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: k.config.Client.CoreV1().Events("")})
	k.recorder = events.NewRecorder(scheme.Scheme, v1.EventSource{Component: "kubelet", Host: k.config.Node})

	logger := klog.FromContext(ctx)
	plugins, err := plugin.NewServer(logger, filepath.Join(k.paths.DevicePlugins, "kubelet.sock"), k.devices, k.devices)
	if err != nil {
		return fmt.Errorf("run kubelet of %s: %w", k.config.Node, err)
	}
	if err := plugins.Start(logger); err != nil {
		return fmt.Errorf("run kubelet of %s: %w", k.config.Node, err)
	}
	defer func() { _ = plugins.Stop(logger) }() // it never fails
	stop, err := k.serve(ctx)
	if err != nil {
		return fmt.Errorf("run kubelet of %s: %w", k.config.Node, err)
	}
	defer stop()

	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.heartbeats(ctx) })
	return k.followPods(ctx)
}

// Containers returns what the containers that run, or ran in a pod that still exists, were given; by pod, in the
// order of their start.
func (k *Kubelet) Containers() []Container {
	r := k.loaded.Load()
	if r == nil {
		return nil
	}
	return r.list()
}

func (k *Kubelet) load() error {
	for _, dir := range []string{
		k.paths.DevicePlugins, k.paths.CDI, filepath.Dir(k.paths.PodResources), filepath.Dir(k.paths.PodsAPI),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	var err error
	if k.runtime, err = loadRuntime(k.paths.runtime, k.paths.CDI); err != nil {
		return err
	}
	k.loaded.Store(k.runtime)
	k.devices, err = loadDevices(k.paths.DevicePlugins, k.pods.active, func() {
		select {
		case k.dirty <- struct{}{}:
		default: // already dirty
		}
	})
	return err
}

// serve starts the servers of pod-resources and the Pods API.
func (k *Kubelet) serve(ctx context.Context) (stop func(), err error) {
	resources := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(resources, podresources.NewV1PodResourcesServer(ctx,
		podresources.PodResourcesProviders{
			Pods: k.pods, Devices: k.devices, Cpus: nothing{}, Memory: nothing{}, DynamicResources: nothing{},
		}))
	pods := grpc.NewServer()
	podsv1alpha1.RegisterPodsServer(pods, k.podsAPI)
	stop = func() { resources.Stop(); pods.Stop() }
	servers := map[string]*grpc.Server{k.paths.PodResources: resources}
	if !k.config.NoPodsAPI {
		servers[k.paths.PodsAPI] = pods
	}
	for path, server := range servers {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			stop()
			return nil, err
		}
		listener, err := net.Listen("unix", path)
		if err != nil {
			stop()
			return nil, fmt.Errorf("listen on %s (%d bytes of at most 107): %w", path, len(path), err)
		}
		go func() {
			if err := server.Serve(listener); err != nil {
				klog.FromContext(ctx).Error(err, "Serve", "socket", path)
			}
		}()
	}
	return stop, nil
}

// pause waits, and reports whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
