package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/metrics"
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
	DevRoot string
	// HostRoot is where the agent sees the root folder of the host, for what it reads of the driver.
	HostRoot    string
	HTTPAddress string
	// SharedMemory is where the agent sees the folder that tenants have as /dev/shm, to remove what they leave there; ""
	// removes nothing.
	SharedMemory string

	Driver  Driver
	Sharing Sharing
	// OpenDriver is called until it succeeds where Driver is nil; meanwhile the agent idles and says why.
	OpenDriver func() (Driver, error)
	// GPUNodes writes the inventory; nil writes none.
	GPUNodes dynamic.ResourceInterface
	// Pods reads the pods of the node from the API server where the kubelet does not serve the Pods API; nil reads none.
	Pods PodAPI
	// Self asks the API server who the agent is (SelfReviews), for the owner of its GPUNode; nil asks nobody.
	Self dynamic.ResourceInterface
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
	libraries *libraries
	keeper    *keeper
	// exclusive is nil where the configuration does not allow the mode.
	exclusive *exclusivity
	driver    string
	stopping  chan struct{}
	bound     chan struct{}
	release   func() error
	closers   []func() error
	// serving is told the address of the HTTP server once pages say what they should, for tests that let the kernel
	// choose the port.
	serving func(address string)
	// podWatch and attribution are shared by sweeper, telemetry and terminator; proc is "/proc" but in tests.
	podWatch    *podWatch
	attribution *attribution
	proc        string
	// dial connects to pods that report their rates; nil but in tests, which have no network of pods.
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// idle says why no device is served; nil where the kubelet is.
	idle error
}

// timing holds what tests shorten.
type timing struct {
	health, canary, probe, hold, drainAfter time.Duration
	rescan, announce, reopen, driver        time.Duration
	sweep, grace, sharingWait               time.Duration
	telemetry, reports                      time.Duration
	patience, silence, again, watch         time.Duration
}

func timingOf(c Config) timing {
	h := c.Health
	return timing{
		health: h.interval(), canary: h.canaryInterval(), probe: h.canaryTimeout(), hold: h.hold(), drainAfter: h.drainAfter(),
		rescan: rescanEvery, announce: c.Telemetry.publishInterval(), reopen: minReopen, driver: driverTimeout,
		sweep: sweepEvery, grace: sweepGrace, sharingWait: sharingWait,
		telemetry: c.Telemetry.interval(), reports: c.Telemetry.interval(),
		patience: patience, silence: kubeletSilence, again: lookAgain, watch: watchGrace,
	}
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
	if o.Driver == nil && o.OpenDriver == nil {
		return nil, errors.New("start agent: there is neither a driver nor a way to open one")
	}
	return &Agent{
		options: o, metrics: m, registry: registry, pulse: newPulse(), stopping: make(chan struct{}),
		bound:   make(chan struct{}, 1),
		serving: func(string) {},
		proc:    "/proc",
		timing:  timingOf(o.Config),
		idle:    errStarting,
	}, nil
}

// Run serves until ctx ends, then says so in the GPUNode and leaves. Unless the configuration says otherwise, MPS
// daemons stay as CDI specs do: running containers notice nothing, and the next agent adopts both.
func (a *Agent) Run(ctx context.Context) error {
	defer a.close()
	if err := a.lockNode(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", a.options.HTTPAddress)
	if err != nil {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	web := newWeb(a.pulse, a.ready, promhttp.HandlerFor(a.registry, promhttp.HandlerOpts{}))
	go func() { _ = web.Serve(&crowd{Listener: listener, most: webConnections}) }() // ends with Close below
	defer func() { _ = web.Close() }()
	address := listener.Addr().String()

	gpus, ok := a.awaitDriver(ctx, func() { a.serving(address) })
	if !ok {
		a.sayGoodbye(ctx)
		return nil
	}
	if err := a.prepare(ctx, gpus); err != nil {
		return err
	}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(logged(klog.FromContext(ctx))))
	pluginapi.RegisterDevicePluginServer(server, a.plugin)
	a.idles(nil)
	a.serving(address)

	var loops sync.WaitGroup
	for _, loop := range a.loops(server) {
		loops.Go(func() { loop(ctx) })
	}
	<-ctx.Done()
	a.sayGoodbye(ctx)
	close(a.stopping)
	awaitLoops(ctx, &loops)
	server.Stop()
	a.tidy(ctx)
	return nil
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

// lockNode takes the node's lock.
func (a *Agent) lockNode() (err error) {
	for _, dir := range []string{a.options.StateDir, a.options.DevicePluginDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("prepare folders: %w", err)
		}
	}
	a.release, err = lock(a.options.StateDir)
	return err
}

// prepare reads what earlier agents left and how the devices are.
func (a *Agent) prepare(ctx context.Context, gpus []GPU) error {
	a.inventory = newInventory(gpus, a.options.Config)
	a.keeper = newKeeper(a)
	a.keeper.examine(ctx)
	if a.options.Config.MPS.ExclusiveProcess {
		a.exclusive = openExclusivity(ctx, a.options.Driver, a.options.StateDir)
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
	a.libraries = openLibraries(ctx, a.options, a.driver)
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
	client := podsapi.NewPodsClient(pods)
	a.podWatch = newPodWatch(client, a.metrics.WatchBroke, a.pulse.of("pods"))
	a.podWatch.server = podServer{api: a.options.Pods, node: a.options.NodeName}
	a.podWatch.choice = newPodChoice(client, a.options.PodsAPISocket, a.options.Pods != nil, a.metrics.SetPodSource)
	a.podWatch.again, a.podWatch.choice.silence = a.timing.again, a.timing.silence
	reader := podReader{client: client, choice: a.podWatch.choice, watch: a.podWatch}
	patient := reader
	patient.patience = a.timing.patience
	a.attribution = newAttribution(a.proc)
	placer := placeReader{client: podresources.NewPodResourcesListerClient(places)}
	a.binder = &binder{
		node:        a.options.NodeName,
		inventory:   a.inventory,
		resolver:    newResolver(a.options.DevicePluginDir, patient, placer, r, a.kubeletUnreadable),
		pods:        patient,
		renderer:    renderer{devRoot: a.options.DevRoot, sharing: a.options.Sharing},
		libraries:   a.libraries,
		specs:       specs,
		records:     r,
		sharingWait: a.timing.sharingWait,
		exclusive:   a.exclusive,
		bound:       a.bound,
	}
	a.keeper.alone = a.heldWhole
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
	r := &registrar{
		folder: a.options.DevicePluginDir, server: server, plugin: a.plugin, metrics: a.metrics, beat: a.pulse.of("registration"),
		watch: a.timing.watch,
	}
	list := []func(context.Context){r.run, a.keeper.run, a.sweeper().run}
	if a.options.GPUNodes != nil {
		list = append(list, a.publisher().run)
	}
	if a.exclusive != nil {
		list = append(list, a.keepExclusive)
	}
	if dir := a.options.SharedMemory; dir != "" {
		c := &cleaner{dir: dir, pods: a.podWatch, metrics: a.metrics, beat: a.pulse.of("shared memory")}
		list = append(list, c.run)
	}
	return slices.Concat(list, a.telemetry(), a.terminator())
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
