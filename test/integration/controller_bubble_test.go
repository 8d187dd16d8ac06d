package integration

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	inference "github.com/tandem-gpu/tandem/internal/controller/fleets"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// chosen are the features of Tandem's controller in a bubble, each nil where it is off.
type chosen struct {
	elastic   *elasticity.Options
	inference *inference.Options
}

// featuresOf reads flags of the controller's command. The values that they leave out are as in startController on a plane.
func featuresOf(t *testing.T, args []string) (f chosen) {
	t.Helper()
	on := []string{"elastic"}
	f.elastic = &elasticity.Options{SchedulerName: v1alpha1.SchedulerName, Preferred: configv1.DefaultPreferredTopology(), Elastic: elastic.Config{Policy: elastic.DefaultPolicy, Horizon: elastic.DefaultHorizon}}
	f.inference = &inference.Options{}
	flags := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	flags.StringSliceVar(&on, "features", on, "")
	flags.DurationVar(&f.elastic.Every, "elastic-interval", time.Second, "")
	flags.DurationVar(&f.elastic.Notice, "elastic-notice", time.Second, "")
	flags.DurationVar(&f.elastic.AdmitWithin, "elastic-admit-within", 2*time.Minute, "")
	flags.IntVar(&f.elastic.Elastic.MaxMoves, "elastic-max-moves", 100, "")
	flags.DurationVar(&f.inference.Every, "inference-interval", 15*time.Second, "")
	flags.DurationVar(&f.inference.Patience, "inference-patience", 0, "")
	must.OK(t, flags.Parse(args))
	for _, name := range on {
		if name != "elastic" && name != "inference" {
			t.Fatalf("the controller in a bubble has no feature %q", name)
		}
	}
	if !slices.Contains(on, "elastic") {
		f.elastic = nil
	}
	if !slices.Contains(on, "inference") {
		f.inference = nil
	}
	return f
}

// startController starts features of Tandem's controller as its command does, but for their cache: they read the API server.
func (w inBubble) startController(t *testing.T, flags ...string) program {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	f, api := featuresOf(t, flags), w.server.Config()
	kube, err := kubernetes.NewForConfig(api)
	must.OK(t, err)
	objects, err := dynamic.NewForConfig(api)
	must.OK(t, err)
	known := runtime.NewScheme()
	must.OK(t, v1alpha1.AddToScheme(known))
	custom, err := client.New(api, client.Options{Scheme: known})
	must.OK(t, err)
	must.OK(t, scheme.AddToScheme(known))
	factory := informers.NewSharedInformerFactory(kube, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	must.OK(t, broadcaster.StartRecordingToSinkWithContext(ctx))
	recorder := broadcaster.NewRecorder(known, "tandem-controller")

	var running []interface{ Start(context.Context) error }
	if o := f.elastic; o != nil {
		o.Kube, o.Dynamic, o.Informers, o.Client, o.Reader, o.Recorder = kube, objects, factory, custom, custom, recorder
		if f.inference != nil {
			o.Fleets = custom
		}
		served, err := podgroup.Discover(ctx, kube.Discovery())
		must.OK(t, err)
		o.Gangs, err = podgroup.New(ctx, podgroup.Options{Pods: factory.Core().V1().Pods().Informer(), Served: served, Dynamic: objects, Client: kube})
		must.OK(t, err)
		controller, err := elasticity.New(*o)
		must.OK(t, err)
		running = append(running, controller)
	}
	if o := f.inference; o != nil {
		groups, err := restmapper.GetAPIGroupResources(kube.Discovery())
		must.OK(t, err)
		o.Informers, o.Dynamic, o.Mapper, o.Client, o.Recorder = factory, objects, restmapper.NewDiscoveryRESTMapper(groups), custom, recorder
		o.Prometheus = answers{w.prometheus}
		controller, err := inference.New(*o)
		must.OK(t, err)
		running = append(running, controller)
	}
	p := &inProcess{done: make(chan struct{})}
	var all sync.WaitGroup
	for _, controller := range running {
		all.Go(func() { _ = controller.Start(ctx) }) // which ends with the context
	}
	go func() {
		defer close(p.done)
		all.Wait()
	}()
	factory.StartWithContext(ctx)
	p.stop = sync.OnceFunc(func() {
		cancel()
		<-p.done
		broadcaster.Shutdown()
		factory.Shutdown()
	})
	return p
}

// answers carries requests to a handler without a connection.
type answers struct{ http.Handler }

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	return w.Result(), nil
}
