package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/test/must"
)

// startController starts the feature of Tandem's controller that sizes elastic gangs, with the options of startController on a plane.
func (w inBubble) startController(t *testing.T, flags ...string) program {
	t.Helper()
	if len(flags) > 0 {
		t.Fatalf("the controller in a bubble has no flags %v", flags)
	}
	ctx, cancel := context.WithCancel(life(t))
	api := w.server.Config()
	kube, err := kubernetes.NewForConfig(api)
	must.OK(t, err)
	factory := informers.NewSharedInformerFactory(kube, 0)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: kube.EventsV1()})
	options, err := elasticOptions(ctx, api, kube, factory)
	if err == nil {
		err = broadcaster.StartRecordingToSinkWithContext(ctx)
	}
	known := runtime.NewScheme()
	if err == nil {
		err = v1alpha1.AddToScheme(known)
	}
	if err == nil {
		err = scheme.AddToScheme(known)
	}
	must.OK(t, err)
	options.Recorder = broadcaster.NewRecorder(known, "tandem-controller")
	controller, err := elasticity.New(options)
	must.OK(t, err)
	p := &inProcess{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = controller.Start(ctx) // which ends with the context
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

// elasticOptions are those of the controller, without a recorder.
func elasticOptions(ctx context.Context, api *rest.Config, kube kubernetes.Interface, factory informers.SharedInformerFactory) (o elasticity.Options, err error) {
	o = elasticity.Options{
		Kube: kube, Informers: factory, SchedulerName: v1alpha1.SchedulerName, Every: time.Second, Notice: time.Second, AdmitWithin: 2 * time.Minute,
		Elastic: elastic.Config{Policy: elastic.DefaultPolicy, Horizon: elastic.DefaultHorizon, MaxMoves: 100},
	}
	known := runtime.NewScheme()
	if err = v1alpha1.AddToScheme(known); err != nil {
		return o, err
	}
	if o.Client, err = client.New(api, client.Options{Scheme: known}); err != nil {
		return o, err
	}
	o.Reader = o.Client
	if o.Dynamic, err = dynamic.NewForConfig(api); err != nil {
		return o, err
	}
	served, err := podgroup.Discover(ctx, kube.Discovery())
	if err != nil {
		return o, err
	}
	o.Gangs, err = podgroup.New(ctx, podgroup.Options{Pods: factory.Core().V1().Pods().Informer(), Served: served, Dynamic: o.Dynamic})
	return o, err
}
