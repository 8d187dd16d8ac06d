package deviceplugin

import (
	"cmp"
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

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/binding"
	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/computemode"
	"github.com/tandem-gpu/tandem/internal/agent/config"
	nvidia "github.com/tandem-gpu/tandem/internal/agent/driver"
	"github.com/tandem-gpu/tandem/internal/agent/edit"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/kubeletconn"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/internal/agent/sharedmemory"
)

// Options say where everything is. All paths are on the host, as the container runtime sees them.
type Options struct {
	NodeName string
	Config   config.Config
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
	// The agent calls OpenDriver until it succeeds where Driver is nil; meanwhile the agent idles and says why.
	OpenDriver func() (Driver, error)
	// GPUNodes writes the inventory; nil writes none.
	GPUNodes dynamic.ResourceInterface
	// Pods reads the pods of the node from the API server where the kubelet does not serve the Pods API; nil reads none.
	Pods podsource.API
	// Self is the resource by which the API server names the agent (SelfReviews), for the owner of its GPUNode; with
	// nil the GPUNode has no owner.
	Self dynamic.ResourceInterface
}

// Agent serves one node.
type Agent struct {
	options Options
	timing  timing

	metrics   *metrics.Agent
	registry  *prometheus.Registry
	pulse     *loop.Pulse
	inventory *inventory.Inventory
	plugin    *plugin
	binder    *binding.Binder
	libraries *edit.Libraries
	keeper    *health.Keeper
	// exclusive is nil where the configuration does not allow the mode.
	exclusive *computemode.Exclusivity
	driver    string
	stopping  chan struct{}
	bound     chan struct{}
	release   func() error
	closers   []func() error
	// serving receives the address of the HTTP server once its pages are right, for tests in which the kernel chooses
	// the port.
	serving func(address string)
	// podWatch and attribution are shared by the sweeper, the meter and the terminator; proc is "/proc" but in tests.
	podWatch    *podsource.Watch
	attribution *resident.Attribution
	proc        string
	// dial connects to pods that report their rates; nil but in tests, which have no network of pods.
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu sync.Mutex
	// idle is the reason why the agent serves no device; nil while it serves the kubelet.
	idle error
}

// timing holds what tests shorten.
type timing struct {
	health, canary, probe, hold, drainAfter time.Duration
	rescan, announce, reopen, driver        time.Duration
	sweep, grace, sharingWait               time.Duration
	telemetry, reports                      time.Duration
	patience, silence, again, watch, hint   time.Duration
}

func timingOf(c config.Config) timing {
	h := c.Health
	return timing{
		health: h.LookEvery(), canary: h.ProbeEvery(), probe: h.ProbeTimeout(), hold: h.HoldTime(), drainAfter: h.DrainTime(),
		rescan: health.RescanEvery, announce: c.Telemetry.PublishEvery(), reopen: minReopen, driver: health.DriverTimeout,
		sweep: binding.SweepEvery, grace: binding.SweepGrace, sharingWait: binding.SharingWait,
		telemetry: c.Telemetry.SampleEvery(), reports: c.Telemetry.SampleEvery(),
		patience: kubeletconn.Patience, silence: podsource.KubeletSilence, again: podsource.LookAgain, watch: watchGrace, hint: hintTimeout,
	}
}

// New returns the agent of a node. New does no I/O; Run starts the agent.
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
		options: o, metrics: m, registry: registry, pulse: loop.NewPulse(), stopping: make(chan struct{}),
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
	go func() { _ = web.Serve(&boundedListener{Listener: listener, most: webConnections}) }() // ends with Close below
	defer func() { _ = web.Close() }()
	address := listener.Addr().String()

	gpus, ok := a.awaitDriver(ctx, func() { a.serving(address) })
	if !ok {
		a.markNotReady(ctx)
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
	a.markNotReady(ctx)
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
func (a *Agent) prepare(ctx context.Context, gpus []inventory.GPU) error {
	a.inventory = inventory.New(gpus, a.options.Config.SlotsOf)
	a.keeper = a.newKeeper()
	a.keeper.Examine(ctx)
	if a.options.Config.MPS.ExclusiveProcess {
		a.exclusive = computemode.Open(ctx, a.options.Driver, a.options.StateDir)
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
	root := cmp.Or(a.options.Config.Driver.Root, a.options.DevRoot)
	a.libraries = edit.OpenLibraries(ctx, a.options.Config.Driver.WantedEdits(), nvidia.Options{Root: root, HostRoot: a.options.HostRoot}, a.driver)
	return a.assemble(specs, r)
}

// openRecords reads the agent's checkpoint. A corrupt one is rebuilt from the kubelet's checkpoint and the specs.
func (a *Agent) openRecords(ctx context.Context, specs *cdi.Store) (*allocation.Records, error) {
	r, err := allocation.Open(a.options.StateDir)
	if !errors.Is(err, allocation.ErrCorrupt) {
		return r, err
	}
	log := klog.FromContext(ctx)
	log.Error(err, "Rebuilding the own checkpoint from the CDI specs and the kubelet's checkpoint")
	a.metrics.CheckpointUnreadable("agent")
	list, err := specs.List()
	if err != nil {
		log.Error(err, "Some CDI specs are unreadable")
	}
	held, err := allocation.ReadHoldings(filepath.Join(a.options.DevicePluginDir, allocation.KubeletCheckpoint))
	if err != nil {
		a.metrics.CheckpointUnreadable("kubelet")
		log.Error(err, "Rebuilding without the kubelet's checkpoint")
	}
	return r, r.Update(func(d *allocation.Data) {
		for _, s := range list {
			d.Grants[s.Owner.UID] = allocation.Grant{Pod: s.Owner.Namespace + "/" + s.Owner.Pod, Assignment: s.Assignment}
		}
		for _, h := range held {
			if h.Name != "" {
				d.Names[h.Name] = allocation.Name{IDs: h.IDs, Allocated: time.Now().UTC()}
			}
		}
	})
}

// assemble connects the parts.
func (a *Agent) assemble(specs *cdi.Store, r *allocation.Records) error {
	pods, err := kubeletconn.Dial(a.options.PodsAPISocket)
	if err != nil {
		return err
	}
	places, err := kubeletconn.Dial(a.options.PodResourcesSocket)
	if err != nil {
		return err
	}
	a.closers = append(a.closers, pods.Close, places.Close)
	watch, reader := podsource.New(podsource.Options{
		Client: podsapi.NewPodsClient(pods), Socket: a.options.PodsAPISocket, Server: a.options.Pods, Node: a.options.NodeName,
		Silence: a.timing.silence, Again: a.timing.again,
		Broke: a.metrics.WatchBroke, Told: a.metrics.SetPodSource, Beat: a.pulse.Of("pods"),
	})
	a.podWatch = watch
	patient := reader.Patient(a.timing.patience)
	a.attribution = resident.NewAttribution(a.proc)
	placer := allocation.PlaceReader{Client: podresources.NewPodResourcesListerClient(places), Patience: a.timing.patience}
	a.binder = &binding.Binder{
		Node:        a.options.NodeName,
		Inventory:   a.inventory,
		Resolver:    binding.NewResolver(a.options.DevicePluginDir, patient, placer, r, a.kubeletUnreadable),
		Pods:        patient,
		Sharing:     a.options.Sharing,
		Renderer:    edit.Renderer{DevRoot: a.options.DevRoot, Sharing: a.options.Sharing},
		Libraries:   a.libraries,
		Specs:       specs,
		Records:     r,
		SharingWait: a.timing.sharingWait,
		Exclusive:   a.exclusive,
		Bound:       a.bound,
	}
	a.keeper.SetAlone(a.heldWhole)
	a.plugin = &plugin{
		inventory: a.inventory, binder: a.binder, pods: reader, records: r, metrics: a.metrics,
		checkpoint: filepath.Join(a.options.DevicePluginDir, allocation.KubeletCheckpoint),
		stopping:   a.stopping, moved: make(chan struct{}), hintTimeout: a.timing.hint,
	}
	return nil
}

func (a *Agent) kubeletUnreadable() { a.metrics.CheckpointUnreadable("kubelet") }

// loops returns everything that runs until the context ends. No loop waits for another.
func (a *Agent) loops(server *grpc.Server) []func(context.Context) {
	r := &registrar{
		folder: a.options.DevicePluginDir, server: server, plugin: a.plugin, metrics: a.metrics, beat: a.pulse.Of("registration"),
		watch: a.timing.watch,
	}
	list := []func(context.Context){r.run, a.keeper.Run, a.sweeper().Run}
	if a.options.GPUNodes != nil {
		list = append(list, a.publisher().Run)
	}
	if a.exclusive != nil {
		list = append(list, a.keepExclusive)
	}
	if dir := a.options.SharedMemory; dir != "" {
		c := &sharedmemory.Cleaner{Dir: dir, Pods: a.podWatch, Metrics: a.metrics, Beat: a.pulse.Of("shared memory")}
		list = append(list, c.Run)
	}
	return slices.Concat(list, a.telemetry(), []func(context.Context){a.terminator().Run})
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
