package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// The autoscaler looks and waits as often and as long as the controller of the fleets does here. By default it looks each 15 s and waits for
// five minutes, and so does that controller. The other numbers are the defaults.
const (
	autoscalerLooks  = passes
	autoscalerWaits  = time.Minute
	tolerance        = .1
	unreadyByCPU     = 5 * time.Minute
	unreadyAtFirst   = 30 * time.Second
	requestsPerPod   = "requests_per_second"
	adapterAddress   = "198.51.100.250"
	adapterPort      = 6443
	adapterNamespace = "kube-system"
)

// adapter is the tool prometheus-adapter.
const adapter = "sigs.k8s.io/prometheus-adapter:./cmd/adapter"

// adapterConfig has the adapter say how many requests a second each pod answers or refuses: the numbers of the preset triton, by pod.
const adapterConfig = `rules:
- seriesQuery: '{__name__="nv_inference_request_success",namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {as: ` + requestsPerPod + `}
  metricsQuery: 'sum by (<<.GroupBy>>) (rate({__name__=~"nv_inference_request_success|nv_inference_request_failure",<<.LabelMatchers>>}[%ds]))'
`

// adapterObjects have the API server send the requests of the custom metrics API to the adapter.
const adapterObjects = `
apiVersion: v1
kind: Service
metadata: {name: prometheus-adapter, namespace: ` + adapterNamespace + `}
spec: {ports: [{port: 443, targetPort: %[2]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: prometheus-adapter, namespace: ` + adapterNamespace + `, labels: {kubernetes.io/service-name: prometheus-adapter}}
addressType: IPv4
endpoints: [{addresses: [%[1]s], conditions: {ready: true}}]
ports: [{name: "", port: %[2]d, protocol: TCP}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta2.custom.metrics.k8s.io}
spec:
  group: custom.metrics.k8s.io
  version: v1beta2
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: prometheus-adapter, namespace: ` + adapterNamespace + `}
`

// startAutoscaler starts Kubernetes' controller of HorizontalPodAutoscalers, in this process under its account, and prometheus-adapter, by
// which it reads the Prometheus of the fleets.
func (c *gatewayCluster) startAutoscaler(t *testing.T) {
	t.Helper()
	c.startAdapter(t)
	// Kubernetes binds the controller's role to this account.
	config, err := c.plane.Config("system:serviceaccount:kube-system:horizontal-pod-autoscaler", nil)
	must.OK(t, err)
	ctx, cancel := context.WithCancel(life(t))
	run, factory, err := horizontalController(ctx, config)
	must.OK(t, err)
	factory.Start(ctx.Done())
	done := make(chan struct{})
	go func() { defer close(done); run() }()
	t.Cleanup(func() {
		cancel()
		<-done
		factory.Shutdown()
	})
}

// horizontalController makes the controller as kube-controller-manager does, and returns what runs it until ctx ends.
func horizontalController(ctx context.Context, config *rest.Config) (run func(), factory informers.SharedInformerFactory, err error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, nil, err
	}
	resources, err := resourceclient.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	external, err := external_metrics.NewForConfig(config)
	if err != nil {
		return nil, nil, err
	}
	versions := custom_metrics.NewAvailableAPIsGetter(client.Discovery())
	factory = informers.NewSharedInformerFactory(client, 0)
	controller := podautoscaler.NewHorizontalController(
		ctx, client.CoreV1(), scales, client.AutoscalingV2(), mapper,
		metrics.NewRESTMetricsClient(resources, custom_metrics.NewForConfig(config, mapper, versions), external),
		factory.Autoscaling().V2().HorizontalPodAutoscalers(), factory.Core().V1().Pods(),
		autoscalerLooks, autoscalerWaits, tolerance, unreadyByCPU, unreadyAtFirst,
	)
	return func() {
		go custom_metrics.PeriodicallyInvalidate(versions, autoscalerLooks, ctx.Done())
		controller.Run(ctx, 5)
	}, factory, nil
}

// startAdapter starts prometheus-adapter behind the API server, and waits until it serves.
func (c *gatewayCluster) startAdapter(t *testing.T) {
	t.Helper()
	binary, err := sandbox.Tool(t.Context(), adapter)
	must.OK(t, err)
	kubeconfig, err := c.plane.Kubeconfig("prometheus-adapter", []string{"system:masters"})
	must.OK(t, err)
	dir := t.TempDir()
	rules, authority := filepath.Join(dir, "rules.yaml"), filepath.Join(c.plane.Dir(), "pki", "ca.crt")
	must.OK(t, os.WriteFile(rules, fmt.Appendf(nil, adapterConfig, int(window.Seconds())), 0o600))
	process, err := c.plane.Processes().Start("prometheus-adapter", exec.Command(binary,
		"--lister-kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--authentication-skip-lookup=true", "--client-ca-file="+authority, "--requestheader-client-ca-file="+authority,
		"--requestheader-allowed-names=front-proxy", "--bind-address="+adapterAddress, fmt.Sprintf("--secure-port=%d", adapterPort), "--cert-dir="+dir,
		"--prometheus-url="+c.prometheus, "--metrics-relist-interval=5s", "--metrics-max-age=1m", "--config="+rules,
	))
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("prometheus-adapter said:\n%s", process.Tail(40))
		}
	})
	c.plane.ApplyForTest(t.Context(), t, fmt.Sprintf(adapterObjects, adapterAddress, adapterPort))
	c.poll(t, "the API server serves the custom metrics", func() (bool, string) {
		_, err := c.admin.Discovery().ServerResourcesForGroupVersion("custom.metrics.k8s.io/v1beta2")
		return err == nil, fmt.Sprint(err)
	})
}

// autoscale makes a HorizontalPodAutoscaler that keeps a pool at so many requests a second for each replica.
func (s *gatewayScene) autoscale(t *testing.T, p *pool, perReplica float64) {
	t.Helper()
	_, err := s.admin.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "bert-" + p.name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "bert-" + p.name},
			MinReplicas:    new(int32(p.least)), MaxReplicas: int32(p.most),
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: requestsPerPod},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewMilliQuantity(int64(1000*perReplica), resource.DecimalSI)},
			}}},
		},
	}, metav1.CreateOptions{})
	must.OK(t, err)
}

// awaitAutoscaler waits until the HorizontalPodAutoscaler of a pool has a metric and may scale.
func (s *gatewayScene) awaitAutoscaler(t *testing.T, p *pool) {
	t.Helper()
	s.poll(t, "the autoscaler of "+p.name+" measures", func() (bool, string) {
		h, err := s.admin.AutoscalingV2().HorizontalPodAutoscalers(s.namespace).Get(t.Context(), "bert-"+p.name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		able, active := false, false
		for _, c := range h.Status.Conditions {
			able = able || c.Type == autoscalingv2.AbleToScale && c.Status == v1.ConditionTrue
			active = active || c.Type == autoscalingv2.ScalingActive && c.Status == v1.ConditionTrue
		}
		return able && active, fmt.Sprintf("%+v", h.Status)
	})
}
