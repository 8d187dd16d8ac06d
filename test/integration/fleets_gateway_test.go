package integration

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/inference"
	"github.com/tandem-gpu/tandem/test/must"
)

// namespaced is set for the process that runs in the network namespace.
const namespaced = "TANDEM_GATEWAY_NAMESPACED"

// TestFleetsGateway sends requests through traefik, an implementation of the Gateway API, to replicas that an inference fleet scales and
// divides them over, and plays a trace to it beside Kubernetes' HorizontalPodAutoscaler. Prometheus scrapes the replicas. All of it runs in a network namespace whose loopback has the addresses of the pods.
func TestFleetsGateway(t *testing.T) {
	switch {
	case os.Getenv("TANDEM_GATEWAY") != "1":
		t.Skip("needs traefik, Prometheus and its adapter, minutes of building that no other test here needs: make test-gateway runs it (TANDEM_GATEWAY=1)")
	case os.Getenv(namespaced) == "":
		enterNamespace(t)
		return
	}
	c := startGatewayCluster(t)
	c.scene(t, "weights and a class of requests", gatewayDivides)
	c.scene(t, "a class of a fleet", gatewayClassOfFleet)
	c.scene(t, "the weights of a fleet", gatewayFleetDivides)
	c.scene(t, "a variant leaves and comes back", gatewayFleetScales)
	c.scene(t, "a trace, beside the HorizontalPodAutoscaler", gatewayTrace)
}

// enterNamespace downloads what the test reads, which takes the network, and runs the test again in a network namespace of its own.
func enterNamespace(t *testing.T) {
	t.Helper()
	if _, err := sandbox.Tools(t.Context(), "etcd", "kube-apiserver", "traefik", "prometheus", adapter); err != nil {
		t.Fatal(err)
	}
	if _, err := sandbox.OperatorSource(t.Context(), gatewayModule); err != nil {
		t.Fatal(err)
	}
	// With the caller's choice of scenes.
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run="+flag.Lookup("test.run").Value.String(), "-test.v", "-test.timeout=50m")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(strings.ToUpper(v), "=")
		return strings.HasSuffix(name, "_PROXY") // there is none in the namespace
	}), namespaced+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if id := os.Geteuid(); id != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: id, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	if err := cmd.Run(); errors.Is(err, syscall.EPERM) {
		t.Fatalf("a network namespace cannot be made: %v; run the test as root, or allow user namespaces", err)
	} else if err != nil {
		t.Fatalf("in the network namespace: %v", err)
	}
}

// gatewayModule has the CustomResourceDefinitions of the Gateway API.
const gatewayModule = "sigs.k8s.io/gateway-api"

// gatewayPort is that of the gateway and of all replicas.
const gatewayPort = 8000

var (
	gatewayClasses = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gatewayclasses"}
	gateways       = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"}
)

// A gatewayCluster is an API server with replicas that serve, Prometheus, traefik, the controller under its account, and Kubernetes' controller
// of HorizontalPodAutoscalers.
type gatewayCluster struct {
	*fleetCluster
	replicas *replicaHost
}

func startGatewayCluster(t *testing.T) *gatewayCluster {
	t.Helper()
	for _, args := range []string{"link set lo up", "addr add 198.51.100.0/24 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("run ip %s: %v: %s", args, err, out)
		}
	}
	c := &gatewayCluster{fleetCluster: newFleetCluster(t, func(o *sandbox.Options) { o.Aggregation = true })}
	source, err := sandbox.OperatorSource(t.Context(), gatewayModule)
	must.OK(t, err)
	files, err := filepath.Glob(filepath.Join(source, "config", "crd", "standard", "gateway.networking.k8s.io_*s.yaml"))
	if err != nil || len(files) < 8 {
		t.Fatalf("the Gateway API has the definitions %v, %v", files, err)
	}
	for _, file := range files {
		c.applySource(t, gatewayModule, "config/crd/standard/"+filepath.Base(file))
	}
	c.replicas = startReplicaHost(t, c.fleetCluster)
	c.runPrometheus(t, fmt.Sprintf("  file_sd_configs:\n  - {files: [%q], refresh_interval: 1s}\n", c.replicas.targets))
	c.startTraefik(t)
	c.startAutoscaler(t)
	c.restart(t)
	return c
}

// startTraefik starts the gateway, and makes its class.
func (c *gatewayCluster) startTraefik(t *testing.T) {
	t.Helper()
	tools, err := sandbox.Tools(t.Context(), "traefik")
	must.OK(t, err)
	kubeconfig, err := c.plane.Kubeconfig("traefik", []string{"system:masters"})
	must.OK(t, err)
	cmd := exec.Command(tools["traefik"], fmt.Sprintf("--entryPoints.web.address=127.0.0.1:%d", gatewayPort), "--providers.kubernetesgateway",
		"--providers.providersThrottleDuration=100ms", "--global.checkNewVersion=false", "--global.sendAnonymousUsage=false", "--log.level=INFO")
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	process, err := c.plane.Processes().Start("traefik", cmd)
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("traefik said:\n%s", process.Tail(40))
		}
	})
	s := &fleetScene{fleetCluster: c.fleetCluster}
	s.createObject(t, gatewayClasses, "GatewayClass", "traefik", map[string]any{"controllerName": "traefik.io/gateway-controller"})
}

// A gatewayScene is a test in a namespace of its own, with a Gateway. The requests of its routes have the name of the namespace as their host.
type gatewayScene struct {
	*fleetScene
	replicas *replicaHost
}

// scene runs a test after the one before: all have the same two cores.
func (c *gatewayCluster) scene(t *testing.T, name string, test func(*testing.T, *gatewayScene)) {
	c.tests++
	scene := &gatewayScene{&fleetScene{fleetCluster: c.fleetCluster, namespace: fmt.Sprintf("team-%d", c.tests)}, c.replicas}
	t.Run(name, func(t *testing.T) {
		scene.play(t, func(t *testing.T, s *fleetScene) {
			s.createObject(t, gateways, "Gateway", "gateway", map[string]any{"gatewayClassName": "traefik", "listeners": []any{
				map[string]any{"name": "http", "protocol": "HTTP", "port": int64(gatewayPort)},
			}})
			test(t, scene)
		})
	})
}

// A pool is a variant: replicas on some hardware.
type pool struct {
	name              string
	hardware          inference.Hardware
	weight            int64
	replicas          int64 // to start with
	least, most, cost int64
	loads             time.Duration // 0 for loads
}

const (
	// aRequest is the mean time of a request on a whole A100, and poolSlots how many a replica serves at once.
	aRequest  = 40 * time.Millisecond
	poolSlots = 8
)

// times are those of a request on the hardware of a pool.
func (p *pool) times(t *testing.T) inference.Times {
	t.Helper()
	times, err := p.hardware.On(aRequest)
	must.OK(t, err)
	return times
}

// rate is how many requests a second a replica completes while it always has enough of them.
func (p *pool) rate(t *testing.T) float64 { return poolSlots / p.times(t).Mean.Seconds() }

// serve makes the Deployments and Services of pools, and a route with a rule for requests of the class batch, which the first pool gets, and
// one for all others, which the weights divide. It waits until requests arrive.
func (s *gatewayScene) serve(t *testing.T, pools []pool) {
	t.Helper()
	refs := make([]any, len(pools))
	for i := range pools {
		p := &pools[i]
		s.serveOne(t, p)
		refs[i] = map[string]any{"name": "bert-" + p.name, "port": int64(80), "weight": p.weight}
	}
	batch := map[string]any{
		"matches":     []any{map[string]any{"headers": []any{map[string]any{"name": classHeader, "value": "batch"}}}},
		"backendRefs": []any{map[string]any{"name": "bert-" + pools[0].name, "port": int64(80)}},
	}
	s.createObject(t, httpRoutes, "HTTPRoute", "bert", map[string]any{
		"parentRefs": []any{map[string]any{"name": "gateway"}}, "hostnames": []any{s.host()}, "rules": []any{batch, map[string]any{"backendRefs": refs}},
	})
	s.poll(t, "requests of both classes are answered", func() (bool, string) {
		answers := slices.Concat(s.send(t, inference.Steady(20, 1, 1), ""), s.send(t, inference.Steady(20, 1, 1), "batch"))
		return len(answers) > 0 && inference.Failures(answers) == "", inference.Failures(answers)
	})
}

// serveOne makes the Deployment and the Service of a pool.
func (s *gatewayScene) serveOne(t *testing.T, p *pool) {
	t.Helper()
	o := inference.Options{Variant: p.name, Times: p.times(t), Slots: poolSlots, Batch: 1}
	s.replicas.declare(s.namespace+"/bert-"+p.name, hosted{o, p.loads})
	s.createVariant(t, "bert-"+p.name, p.replicas)
}

// classHeader names the class of a request.
const classHeader = "X-Class"

func (s *gatewayScene) host() string { return s.namespace + ".example" }

// send replays a load of a class, "" for none, and returns what came of it.
func (s *gatewayScene) send(t *testing.T, l *inference.Load, class string) []inference.Answer {
	t.Helper()
	return s.sendUntil(t.Context(), t, l, s.host(), class)
}

// sendUntil is send to a host that ends early when ctx ends.
func (s *gatewayScene) sendUntil(ctx context.Context, t *testing.T, l *inference.Load, host, class string) []inference.Answer {
	t.Helper()
	answers, err := inference.Replay(ctx, l, func(ctx context.Context) (*http.Request, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d/v2/models/bert/infer", gatewayPort), http.NoBody)
		if err == nil {
			r.Host = host
			if class != "" {
				r.Header.Set(classHeader, class)
			}
		}
		return r, err
	})
	if err != nil {
		t.Error(err)
	}
	return answers
}

// control makes the fleet of pools, whose rule is the second one of their route.
func (s *gatewayScene) control(t *testing.T, promise string, pools []pool) {
	t.Helper()
	s.controlRoute(t, promise, pools, map[string]any{"name": "bert", "rule": int64(1)})
}

// controlRoute makes the fleet of pools, whose rule is one of an HTTPRoute.
func (s *gatewayScene) controlRoute(t *testing.T, promise string, pools []pool, route map[string]any) {
	t.Helper()
	list := make([]any, len(pools))
	for i := range pools {
		p := &pools[i]
		times := p.times(t)
		list[i] = map[string]any{
			"name":           p.name,
			"scaleTargetRef": p.scaleTarget(),
			"service":        map[string]any{"name": "bert-" + p.name, "port": int64(80)},
			"cost":           p.cost, "minReplicas": p.least, "maxReplicas": p.most, "loadTime": cmp.Or(p.loads, loads).String(),
			"replica": map[string]any{
				"rate": strconv.FormatFloat(p.rate(t), 'f', 3, 64), "time": times.Mean.Round(time.Microsecond).String(),
				"variation": strconv.FormatFloat(times.Variation, 'f', 3, 64),
			},
		}
	}
	s.createObject(t, fleets, "InferenceFleet", "bert", map[string]any{
		"promise": map[string]any{"latency": promise}, "variants": list, "route": map[string]any{"httpRoute": route},
		"metrics": map[string]any{"prometheusURL": s.prometheus, "preset": "triton", "window": window.String()},
	})
}

// scaleTarget is the Deployment of a pool, for who scales it.
func (p *pool) scaleTarget() map[string]any {
	return map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "bert-" + p.name}
}

// weights returns the weights of the variants in the second rule of the route, in thousandths.
func (s *gatewayScene) weights(t *testing.T) map[string]float64 {
	t.Helper()
	o, err := s.objects.Resource(httpRoutes).Namespace(s.namespace).Get(t.Context(), "bert", metav1.GetOptions{})
	must.OK(t, err)
	rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "rules")
	refs, _, _ := unstructured.NestedSlice(rules[1].(map[string]any), "backendRefs")
	weights, sum := map[string]float64{}, 0.0
	for _, ref := range refs {
		ref := ref.(map[string]any)
		w := float64(ref["weight"].(int64))
		weights[strings.TrimPrefix(ref["name"].(string), "bert-")] = w
		sum += w
	}
	for name := range weights {
		weights[name] /= sum
	}
	return weights
}

// begin replays a load until the caller calls end, which returns what came of it.
func (s *gatewayScene) begin(t *testing.T, rate float64, seed uint64) (end func() []inference.Answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	done, ended := make(chan []inference.Answer, 1), make(chan struct{})
	go func() {
		defer close(ended)
		done <- s.sendUntil(ctx, t, inference.Steady(rate, 900, seed), s.host(), "")
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return func() []inference.Answer {
		cancel()
		return <-done
	}
}

// awaitFleet waits until a fleet and its weights are right.
func (s *gatewayScene) awaitFleet(t *testing.T, what string, right func(f *v1alpha1.InferenceFleet, weights map[string]float64) bool) {
	t.Helper()
	s.poll(t, what, func() (bool, string) {
		f, weights := s.fleet(t, "bert"), s.weights(t)
		return right(f, weights), fmt.Sprintf("weights %v, status %+v", weights, f.Status)
	})
}

// keeps reports whether it is measured that a fleet keeps its promise.
func keeps(f *v1alpha1.InferenceFleet) bool {
	kept := meta.FindStatusCondition(f.Status.Conditions, v1alpha1.ConditionPromiseKept)
	return kept != nil && kept.Reason == "Kept"
}
