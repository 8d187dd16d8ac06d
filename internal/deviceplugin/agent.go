package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/internal/cdi"
	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Options say where everything is. All paths are on the host, as the container runtime sees them.
type Options struct {
	NodeName string
	Config   Config
	// DevicePluginDir holds the kubelet's socket, its checkpoint and the agent's socket.
	DevicePluginDir    string
	PodResourcesSocket string
	PodsAPISocket      string
	CDIDir             string
	StateDir           string
	// DevRoot is the folder that has dev/nvidia* in it.
	DevRoot     string
	HTTPAddress string

	Driver  Driver
	Sharing Sharing
	// GPUNodes writes the inventory; nil writes none.
	GPUNodes dynamic.ResourceInterface
}

// Agent serves one node.
type Agent struct {
	options Options
	timing  timing

	metrics   *metrics.Agent
	registry  *prometheus.Registry
	pulse     *pulse
	inventory *inventory
	plugin    *plugin
	binder    *binder
	driver    string
	stopping  chan struct{}
	bound     chan struct{}
	release   func() error
	closers   []func() error
	// serving is told the address of the HTTP server, for tests that let the kernel choose the port.
	serving func(address string)
}

// timing holds what tests shorten.
type timing struct {
	health, sweep, grace, sharingWait time.Duration
}

// New returns the agent of a node. It does no I/O; Run starts it.
func New(o Options) (*Agent, error) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m, err := metrics.NewAgent(registry)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if o.NodeName == "" {
		return nil, errors.New("start agent: the name of the node is missing: set --node-name or NODE_NAME")
	}
	return &Agent{
		options: o, metrics: m, registry: registry, pulse: newPulse(), stopping: make(chan struct{}),
		bound:   make(chan struct{}, 1),
		serving: func(string) {},
		timing:  timing{health: healthEvery, sweep: sweepEvery, grace: sweepGrace, sharingWait: sharingWait},
	}, nil
}

// Run serves until ctx ends, then says so in the GPUNode and leaves. MPS daemons and CDI specs stay: running
// containers notice nothing, and the next agent adopts both.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	if err := a.prepare(ctx); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", a.options.HTTPAddress)
	if err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(logged(klog.FromContext(ctx))))
	pluginapi.RegisterDevicePluginServer(server, a.plugin)
	web := &http.Server{
		Handler:           handler(a.pulse, a.ready, promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{})),
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = web.Serve(listener) }() // ends with Close below
	a.serving(listener.Addr().String())

	var loops sync.WaitGroup
	for _, loop := range a.loops(server) {
		loops.Go(func() { loop(ctx) })
	}
	<-ctx.Done()
	a.sayGoodbye(ctx)
	close(a.stopping)
	awaitLoops(ctx, &loops)
	server.Stop()
	return web.Close()
}

// loopTimeout bounds the wait for loops that a hanging driver holds.
const loopTimeout = 5 * time.Second

func awaitLoops(ctx context.Context, loops *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		loops.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(loopTimeout):
		klog.FromContext(ctx).Info("Leaving although a loop has not ended: the driver or MPS does not answer")
	}
}

// prepare takes the node's lock and reads what earlier agents left and what the driver knows.
func (a *Agent) prepare(ctx context.Context) error {
	for _, dir := range []string{a.options.StateDir, a.options.DevicePluginDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("prepare folders: %w", err)
		}
	}
	var err error
	if a.release, err = lock(a.options.StateDir); err != nil {
		return err
	}
	gpus, err := a.options.Driver.GPUs()
	if err != nil {
		return fmt.Errorf("list GPUs: %w", err)
	}
	if a.driver, err = a.options.Driver.Version(); err != nil {
		return fmt.Errorf("read driver version: %w", err)
	}
	a.inventory = newInventory(gpus, a.options.Config)
	for _, g := range gpus {
		a.inventory.setHealth(g.ID, sickness(a.options.Driver.Health(g.ID)))
	}
	klog.FromContext(ctx).Info("Read the inventory", "node", a.options.NodeName, "devices", len(gpus), "driver", a.driver)
	specs, err := cdi.Open(a.options.CDIDir)
	if err != nil {
		return err
	}
	r, err := a.openRecords(ctx, specs)
	if err != nil {
		return err
	}
	return a.assemble(specs, r)
}

// openRecords reads the agent's checkpoint. A corrupt one is rebuilt from the kubelet's checkpoint and the specs.
func (a *Agent) openRecords(ctx context.Context, specs *cdi.Store) (*records, error) {
	r, err := openRecords(a.options.StateDir)
	if !errors.Is(err, errRecordsCorrupt) {
		return r, err
	}
	log := klog.FromContext(ctx)
	log.Error(err, "Rebuilding the own checkpoint from the CDI specs and the kubelet's checkpoint")
	a.metrics.CheckpointUnreadable("agent")
	list, err := specs.List()
	if err != nil {
		log.Error(err, "Some CDI specs are unreadable")
	}
	held, err := readHoldings(filepath.Join(a.options.DevicePluginDir, kubeletCheckpoint))
	if err != nil {
		a.metrics.CheckpointUnreadable("kubelet")
		log.Error(err, "Rebuilding without the kubelet's checkpoint")
	}
	return r, r.update(func(d *recordsData) {
		for _, s := range list {
			d.Grants[s.Owner.UID] = grant{Pod: s.Owner.Namespace + "/" + s.Owner.Pod, Assignment: s.Assignment}
		}
		for _, h := range held {
			if h.Name != "" {
				d.Names[h.Name] = nameRecord{IDs: h.IDs, Allocated: time.Now().UTC()}
			}
		}
	})
}

// assemble connects the parts.
func (a *Agent) assemble(specs *cdi.Store, r *records) error {
	pods, err := dialKubelet(a.options.PodsAPISocket)
	if err != nil {
		return err
	}
	places, err := dialKubelet(a.options.PodResourcesSocket)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, pods.Close, places.Close)
	reader := podReader{client: podsapi.NewPodsClient(pods)}
	placer := placeReader{client: podresources.NewPodResourcesListerClient(places)}
	a.binder = &binder{
		node:        a.options.NodeName,
		inventory:   a.inventory,
		resolver:    newResolver(a.options.DevicePluginDir, reader.patient(), placer, r, a.kubeletUnreadable),
		pods:        reader.patient(),
		renderer:    renderer{devRoot: a.options.DevRoot, sharing: a.options.Sharing},
		specs:       specs,
		records:     r,
		sharingWait: a.timing.sharingWait,
		bound:       a.bound,
	}
	a.plugin = &plugin{
		inventory: a.inventory, binder: a.binder, pods: reader, records: r, metrics: a.metrics,
		checkpoint: filepath.Join(a.options.DevicePluginDir, kubeletCheckpoint),
		stopping:   a.stopping, moved: make(chan struct{}),
	}
	return nil
}

func (a *Agent) kubeletUnreadable() { a.metrics.CheckpointUnreadable("kubelet") }

// loops returns everything that turns until the context ends. None waits for another.
func (a *Agent) loops(server *grpc.Server) []func(context.Context) {
	k := &keeper{inventory: a.inventory, driver: a.options.Driver, sharing: a.options.Sharing, every: a.timing.health, beat: a.pulse.of("health")}
	r := &registrar{folder: a.options.DevicePluginDir, server: server, plugin: a.plugin, metrics: a.metrics, beat: a.pulse.of("registration")}
	s := &sweeper{
		binder: a.binder, pods: a.plugin.pods, checkpoint: a.plugin.checkpoint, metrics: a.metrics, every: a.timing.sweep, grace: a.timing.grace,
		unreadable: a.kubeletUnreadable, beat: a.pulse.of("sweep"), bound: a.bound, missing: map[string]time.Time{},
	}
	list := []func(context.Context){r.run, k.watchHealth, s.run}
	if a.options.GPUNodes != nil {
		list = append(list, a.publisher().run)
	}
	devices, _ := a.inventory.snapshot()
	for i := range devices {
		if devices[i].shared() {
			list = append(list, func(ctx context.Context) { k.keepSharing(ctx, devices[i].GPU) })
		}
	}
	return list
}

func (a *Agent) publisher() *publisher {
	return &publisher{
		client: a.options.GPUNodes, node: a.options.NodeName, status: a.status,
		done: a.metrics.Published, beat: a.pulse.of("gpunode"),
	}
}

// status is what the GPUNode says now, and what tells that it may have changed.
func (a *Agent) status() (v1alpha1.GPUNodeStatus, signals) {
	devices, devicesChanged := a.inventory.snapshot()
	watched, watchChanged := a.plugin.watched()
	s := gpuNodeStatus(devices, a.driver)
	condition := readyCondition(readyServing, "the kubelet watches the slots")
	if !watched {
		condition = readyCondition(readyNotRegistered, "the kubelet does not watch the slots: it is restarting, or refuses the agent")
	}
	s.Conditions = append(s.Conditions, condition)
	return s, signals{devicesChanged, watchChanged}
}

// goodbyeTimeout bounds what a stopping agent waits for the API server. It is part of the pod's grace period.
const goodbyeTimeout = 5 * time.Second

// sayGoodbye marks the node not ready before its slots vanish, so that nothing is placed there meanwhile: the kubelet
// rejects pods for good while it has no slots.
func (a *Agent) sayGoodbye(ctx context.Context) {
	if a.options.GPUNodes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	devices, _ := a.inventory.snapshot()
	s := gpuNodeStatus(devices, a.driver)
	s.Conditions = append(s.Conditions, readyCondition(readyStopping, "the agent was told to stop"))
	p := a.publisher()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return p.publish(ctx, s) })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot mark the GPUNode not ready")
	}
}

// ready is nil when the kubelet watches the slots.
func (a *Agent) ready() error {
	if watched, _ := a.plugin.watched(); !watched {
		return errors.New("not registered: the kubelet does not watch the slots")
	}
	return nil
}

func (a *Agent) close() {
	for _, c := range a.closers {
		_ = c()
	}
	if a.release != nil {
		_ = a.release()
	}
}

// logged gives the calls of the kubelet the agent's logger.
func logged(log klog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		return next(klog.NewContext(ctx, log), r)
	}
}
