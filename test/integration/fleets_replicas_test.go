package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/test/inference"
)

const (
	// loads is how long a replica takes until it serves, where its Deployment was not declared with another time.
	loads = time.Second
	// leaves is how long a replica goes on to serve when it is no longer an endpoint, as with a preStop hook that sleeps: gateways learn late
	// that it is gone.
	leaves = 2 * time.Second
)

// A replicaHost does what the controllers of Kubernetes and the kubelets do with Deployments: it starts and ends replicas, each with a pod and an
// address of 198.51.100.0/24, makes the EndpointSlice of the Service of the same name, writes the status, and has Prometheus scrape them.
type replicaHost struct {
	cluster *fleetCluster
	// targets is a file of Prometheus's service discovery.
	targets string
	mu      sync.Mutex
	options map[string]hosted // by Deployment
	// ran is how long the replicas of a Deployment that have left ran, together.
	ran map[string]time.Duration
	// running are the replicas by Deployment, the oldest first. Those that leave are not among them, and keep their address.
	running map[string][]*hostedReplica
	used    map[int]bool // last numbers of addresses
	started int
	ends    sync.WaitGroup
	written string
}

// hosted is how the replicas of a Deployment serve, and how long they load.
type hosted struct {
	inference.Options
	loads time.Duration
}

// A hostedReplica is a server with an address and a pod.
type hostedReplica struct {
	name    string
	pod     *v1.Pod
	number  int
	server  *inference.Server
	http    *http.Server
	started time.Time
	// isReady is set when the replica has loaded, and toldReady when its pod says so.
	isReady, toldReady bool
}

func (r *hostedReplica) address() string { return fmt.Sprintf("198.51.100.%d", r.number) }

func startReplicaHost(t *testing.T, c *fleetCluster) *replicaHost {
	t.Helper()
	h := &replicaHost{
		cluster: c, targets: filepath.Join(t.TempDir(), "targets.json"), options: map[string]hosted{},
		running: map[string][]*hostedReplica{}, used: map[int]bool{}, ran: map[string]time.Duration{},
	}
	ctx, cancel := context.WithCancel(life(t))
	rounds := make(chan struct{})
	go func() {
		defer close(rounds)
		round := time.NewTicker(50 * time.Millisecond)
		defer round.Stop()
		for ctx.Err() == nil {
			if err := h.round(ctx); err != nil && ctx.Err() == nil {
				t.Logf("the replicas: %v; the next round tries again", err)
			}
			select {
			case <-round.C:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-rounds
		for _, replicas := range h.running {
			for _, r := range replicas {
				_ = r.http.Close()
				r.server.Close()
			}
		}
		h.ends.Wait()
	})
	return h
}

// declare says how the replicas of a Deployment serve: namespace/name. They load for loads where it says 0.
func (h *replicaHost) declare(deployment string, o hosted) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o.loads = cmp.Or(o.loads, loads)
	h.options[deployment] = o
}

// replicaTime is how long all replicas of a Deployment ran so far, together. It counts those that load, and not those that have left.
func (h *replicaHost) replicaTime(deployment string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := h.ran[deployment]
	for _, r := range h.running[deployment] {
		sum += time.Since(r.started)
	}
	return sum
}

// slowDown changes the speed of all replicas of a Deployment.
func (h *replicaHost) slowDown(deployment string, factor float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.running[deployment] {
		r.server.SlowDown(factor)
	}
}

// round brings all Deployments one step further.
func (h *replicaHost) round(ctx context.Context) error {
	list, err := h.cluster.admin.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range list.Items {
		d := &list.Items[i]
		key := d.Namespace + "/" + d.Name
		if _, declared := h.options[key]; !declared {
			continue
		}
		leave, err := h.resize(ctx, d)
		if err != nil {
			return err
		}
		if err := h.publish(ctx, d); err != nil {
			return err
		}
		for _, r := range leave { // no longer an endpoint
			h.ends.Go(func() { h.end(ctx, r) })
		}
	}
	return h.writeTargets()
}

// resize starts replicas, or returns the newest ones, which are to end once they are no longer endpoints.
func (h *replicaHost) resize(ctx context.Context, d *appsv1.Deployment) (leave []*hostedReplica, err error) {
	key, want := d.Namespace+"/"+d.Name, int(*d.Spec.Replicas)
	for len(h.running[key]) < want {
		r, err := h.start(ctx, d)
		if err != nil {
			return nil, err
		}
		h.running[key] = append(h.running[key], r)
	}
	leave = slices.Clone(h.running[key][want:])
	h.running[key] = h.running[key][:want]
	for _, r := range leave {
		h.ran[key] += time.Since(r.started)
	}
	for _, r := range h.running[key] {
		r.isReady = r.isReady || time.Since(r.started) >= h.options[key].loads
		if err := h.tell(ctx, r); err != nil {
			return nil, err
		}
	}
	return leave, nil
}

// tell has the pod of a replica that has loaded say so.
func (h *replicaHost) tell(ctx context.Context, r *hostedReplica) error {
	if !r.isReady || r.toldReady {
		return nil
	}
	err := h.writePod(ctx, r, v1.ConditionTrue)
	r.toldReady = err == nil
	return err
}

// makePod makes the pod of a replica, as a kubelet that runs it writes it.
func (h *replicaHost) makePod(ctx context.Context, d *appsv1.Deployment, r *hostedReplica) (err error) {
	r.pod, err = h.cluster.admin.CoreV1().Pods(d.Namespace).Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: r.name, Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return h.writePod(ctx, r, v1.ConditionFalse)
}

func (h *replicaHost) writePod(ctx context.Context, r *hostedReplica, ready v1.ConditionStatus) error {
	pod, now := r.pod.DeepCopy(), metav1.Now()
	started := metav1.NewTime(r.started)
	pod.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: &started, PodIP: r.address(), PodIPs: []v1.PodIP{{IP: r.address()}}}
	for _, of := range []v1.PodConditionType{v1.ContainersReady, v1.PodReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: of, Status: ready, LastTransitionTime: now})
	}
	written, err := h.cluster.admin.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if err == nil {
		r.pod = written
	}
	return err
}

// start starts a replica with the lowest free address.
func (h *replicaHost) start(ctx context.Context, d *appsv1.Deployment) (*hostedReplica, error) {
	h.started++
	r := &hostedReplica{name: fmt.Sprintf("replica-%d", h.started), number: 1, started: time.Now()}
	for h.used[r.number] {
		r.number++
	}
	o := h.options[d.Namespace+"/"+d.Name].Options
	o.Replica, o.Seed = r.name, uint64(h.started)
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", r.address(), gatewayPort))
	if err != nil {
		return nil, err
	}
	if r.server, err = inference.NewServer(o); err != nil {
		listener.Close()
		return nil, err
	}
	if err := h.makePod(ctx, d, r); err != nil {
		listener.Close()
		r.server.Close()
		return nil, err
	}
	h.used[r.number] = true
	r.http = &http.Server{Handler: r.server, ReadHeaderTimeout: time.Minute}
	h.ends.Go(func() { _ = r.http.Serve(listener) }) // until Shutdown or Close
	return r, nil
}

// end ends a replica that is no longer an endpoint: its pod goes, and it serves a while, answers what it has, and is gone.
func (h *replicaHost) end(ctx context.Context, r *hostedReplica) {
	_ = h.cluster.admin.CoreV1().Pods(r.pod.Namespace).Delete(ctx, r.name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	time.Sleep(leaves) // the time that a preStop hook takes is what is played here
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = r.http.Shutdown(ctx)
	r.server.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.used, r.number)
}

// publish writes the endpoints and the status of a Deployment where they differ.
func (h *replicaHost) publish(ctx context.Context, d *appsv1.Deployment) error {
	var endpoints []discoveryv1.Endpoint
	for _, r := range h.running[d.Namespace+"/"+d.Name] {
		if r.isReady {
			endpoints = append(endpoints, discoveryv1.Endpoint{
				Addresses: []string{r.address()}, Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true)},
				TargetRef: &v1.ObjectReference{Kind: "Pod", Namespace: d.Namespace, Name: r.name, UID: r.pod.UID},
			})
		}
	}
	if err := h.writeEndpoints(ctx, d, endpoints); err != nil {
		return err
	}
	all, ready := int32(len(h.running[d.Namespace+"/"+d.Name])), int32(len(endpoints))
	if s := &d.Status; s.Replicas == all && s.ReadyReplicas == ready && s.ObservedGeneration == d.Generation {
		return nil
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: all, UpdatedReplicas: all, ReadyReplicas: ready, AvailableReplicas: ready, UnavailableReplicas: all - ready,
	}
	if _, err := h.cluster.admin.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		return err
	}
	return nil // somebody has changed it: the next round reads it anew
}

func (h *replicaHost) writeEndpoints(ctx context.Context, d *appsv1.Deployment, endpoints []discoveryv1.Endpoint) error {
	api := h.cluster.admin.DiscoveryV1().EndpointSlices(d.Namespace)
	now, err := api.Get(ctx, d.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: d.Name, Labels: map[string]string{discoveryv1.LabelServiceName: d.Name}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: endpoints,
			Ports: []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(gatewayPort)), Protocol: new(v1.ProtocolTCP)}},
		}, metav1.CreateOptions{})
		return err
	}
	same := func(a, b discoveryv1.Endpoint) bool {
		return a.Addresses[0] == b.Addresses[0] && a.TargetRef.UID == b.TargetRef.UID
	}
	if err != nil || slices.EqualFunc(now.Endpoints, endpoints, same) {
		return err
	}
	now.Endpoints = endpoints
	_, err = api.Update(ctx, now, metav1.UpdateOptions{})
	return err
}

// writeTargets has Prometheus scrape the replicas that have loaded, with the labels that a ServiceMonitor sets.
func (h *replicaHost) writeTargets() error {
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for key, replicas := range h.running {
		namespace, name := filepath.Split(key)
		for _, r := range replicas {
			if r.isReady {
				groups = append(groups, group{
					Targets: []string{fmt.Sprintf("%s:%d", r.address(), gatewayPort)},
					Labels:  map[string]string{"namespace": filepath.Clean(namespace), "service": name, "pod": r.name},
				})
			}
		}
	}
	slices.SortFunc(groups, func(a, b group) int { return strings.Compare(a.Labels["pod"], b.Labels["pod"]) })
	raw, err := json.Marshal(groups)
	if err != nil || string(raw) == h.written {
		return err
	}
	if err := os.WriteFile(h.targets+".new", raw, 0o600); err != nil {
		return err
	}
	if err := os.Rename(h.targets+".new", h.targets); err != nil {
		return err
	}
	h.written = string(raw)
	return nil
}
