package integration

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // the arguments of the plugins
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpuqueue"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/fakeserver"
	"github.com/tandem-gpu/tandem/test/must"
)

// inBubble is the world of a cluster in a bubble. The controller's queries reach prometheus, nil for none.
type inBubble struct {
	server     *fakeserver.Server
	prometheus http.Handler
}

// bubblePatience is how long a test in a bubble waits for one thing. Fleets learn what they need within minutes.
const bubblePatience = 30 * time.Minute

// newServer returns the API server of a mode.
func newServer(mode gangMode) *fakeserver.Server {
	resources := slices.Clone(customResources())
	switch {
	case mode.stable:
		resources = append(resources, fakeserver.Resource{GroupVersionResource: membership.StablePodGroups, Kind: "PodGroup", Namespaced: true})
	case mode.source == podgroup.Native:
		workloads := membership.NativePodGroups.GroupVersion().WithResource("workloads")
		resources = append(resources, fakeserver.Resource{GroupVersionResource: membership.NativePodGroups, Kind: "PodGroup", Namespaced: true},
			fakeserver.Resource{GroupVersionResource: workloads, Kind: "Workload", Namespaced: true})
	case mode.source == podgroup.XK8s:
		resources = append(resources, fakeserver.Resource{GroupVersionResource: membership.XK8sPodGroups, Kind: "PodGroup", Namespaced: true})
	}
	return fakeserver.New(resources...)
}

// customResources are those of Tandem, and the HTTPRoutes of the Gateway API.
var customResources = sync.OnceValue(func() []fakeserver.Resource {
	crds, err := sandbox.CustomResourceDefinitions()
	if err != nil {
		panic(err) // this checkout is broken
	}
	all := []fakeserver.Resource{{GroupVersionResource: httpRoutes, Kind: "HTTPRoute", Namespaced: true}}
	for _, raw := range crds {
		r, err := fakeserver.Custom(raw)
		if err != nil {
			panic(err)
		}
		all = append(all, r)
	}
	return all
})

// setGates sets the feature gates of this process as the scheduler's command does by what the API server serves.
func setGates(t *testing.T, mode gangMode) {
	t.Helper()
	gates := utilfeature.DefaultFeatureGate
	featuregatetesting.SetFeatureGateDuringTest(t, gates, features.SchedulerPreQueueingHints, true)
	featuregatetesting.SetFeatureGateDuringTest(t, gates, features.GenericWorkload, mode.source == podgroup.Native && !mode.stable)
}

// poll asks when all that runs has come to rest, for bubblePatience. It asks less often for what comes late.
// The pauses are on the bubble's clock, where they cost no time.
func (w inBubble) poll(_ *testing.T, ask func() (bool, string)) error {
	began := time.Now()
	for deadline := began.Add(bubblePatience); ; time.Sleep(min(pollEvery+time.Since(began)/20, time.Second)) {
		bubble.Rest()
		ok, state := ask()
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New(state)
		}
	}
}

func (w inBubble) refuse(_ *testing.T, what refusedRequests) (accept func()) {
	name := regexp.MustCompile(what.name)
	return w.server.Refuse(func(r fakeserver.Request) error {
		if !strings.EqualFold(r.Verb, string(what.operation)) || r.Resource != what.resource || !name.MatchString(r.Name) {
			return nil
		}
		return apierrors.NewForbidden(schema.GroupResource{Resource: what.resource}, r.Name, errors.New(refusedByTest))
	})
}

func (w inBubble) mayLag() bool { return false }

func (w inBubble) servePodGroups(*testing.T) {
	w.server.Serve(fakeserver.Resource{GroupVersionResource: membership.XK8sPodGroups, Kind: "PodGroup", Namespaced: true})
}

// noticePodGroups does what the command of the scheduler does: it looks every half minute.
func (w inBubble) noticePodGroups(_ *testing.T, scheduler program) {
	time.Sleep(30 * time.Second)
	scheduler.Stop(0)
}

func (w inBubble) rejected(*testing.T, string) []rejectedEvent { return nil }

// inProcess is a scheduler in this process.
type inProcess struct {
	stop func()
	done chan struct{}
}

func (p *inProcess) Done() <-chan struct{} { return p.done }
func (p *inProcess) Err() error            { return nil }
func (p *inProcess) Tail(int) string       { return "see the output with -v" }

func (p *inProcess) Stop(time.Duration) { p.stop() }

// startScheduler starts the scheduler as its command does, with the plugins of the command.
func (w inBubble) startScheduler(t *testing.T, config map[string]any) program {
	t.Helper()
	c := loadConfig(t, config)
	api := w.server.Config()
	api.QPS, api.Burst = c.ClientConnection.QPS, int(c.ClientConnection.Burst)
	client, err := kubernetes.NewForConfig(api)
	must.OK(t, err)
	ctx, cancel := context.WithCancel(life(t))
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	factory := scheduler.NewInformerFactory(client, 0, nil)
	s, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster), append(optionsOf(c, api),
		scheduler.WithFrameworkOutOfTreeRegistry(plugins()))...)
	if err == nil {
		err = broadcaster.StartRecordingToSinkWithContext(ctx)
	}
	if err == nil {
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		err = s.WaitForHandlersSync(ctx)
	}
	p := &inProcess{done: make(chan struct{})}
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-p.done
		for _, one := range s.Profiles { // those do not wait for the context
			one.IterateOverWaitingPods(func(waiting fwk.WaitingPod) { waiting.Reject("", "the scheduler ended") })
		}
		broadcaster.Shutdown()
		factory.Shutdown()
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		s.Run(ctx)
	}()
	return p
}

// loadConfig reads a configuration as the scheduler's command does, with the defaults of what it leaves out.
func loadConfig(t *testing.T, config map[string]any) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	raw, err := kyaml.Marshal(config)
	must.OK(t, err)
	path := filepath.Join(t.TempDir(), "scheduler.yaml")
	must.OK(t, os.WriteFile(path, raw, 0o600))
	loaded, err := options.LoadConfigFromFile(klog.Background(), path)
	must.OK(t, err)
	return loaded
}

func optionsOf(c *schedulerconfig.KubeSchedulerConfiguration, api *rest.Config) []scheduler.Option {
	return []scheduler.Option{
		scheduler.WithComponentConfigVersion(c.APIVersion), scheduler.WithKubeConfig(api), scheduler.WithProfiles(c.Profiles...),
		scheduler.WithPercentageOfNodesToScore(c.PercentageOfNodesToScore), scheduler.WithParallelism(c.Parallelism),
		scheduler.WithPodInitialBackoffSeconds(c.PodInitialBackoffSeconds), scheduler.WithPodMaxBackoffSeconds(c.PodMaxBackoffSeconds),
	}
}

// plugins are those of the scheduler's command.
func plugins() frameworkruntime.Registry {
	shares := &gpushare.Factory{}
	room := machine.New(func() machine.Shares { return shares.Plugin() })
	return frameworkruntime.Registry{
		gpushare.Name: shares.New,
		gpugang.Name: gpugang.NewFactory(func() gpugang.Shares {
			if p := shares.Plugin(); p != nil {
				return p
			}
			return nil
		}, room),
		gpupreempt.Name: gpupreempt.NewFactory(func() gpupreempt.Shares {
			if p := shares.Plugin(); p != nil {
				return p
			}
			return nil
		}, room),
		gpuqueue.Name: gpuqueue.New,
	}
}
