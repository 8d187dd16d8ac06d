package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

const (
	// urgent is the PriorityClass of preemptors. Pods of no class have priority 0.
	urgent         = "e2e-urgent"
	urgentPriority = 1000
	// stepsPort is where the programs of countingPod report how much they have done.
	stepsPort = 9400
)

// urgentClass makes the PriorityClass until the test's end.
func (n *Tenant) urgentClass() {
	n.t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: urgent}, Value: urgentPriority}
	sandbox.CreatePriorityClassForTest(n.t.Context(), n.t, n.client, class)
	n.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := n.client.SchedulingV1().PriorityClasses().Delete(ctx, urgent, metav1.DeleteOptions{}); err != nil {
			n.t.Error(err)
		}
	})
}

// urgently gives the pod the priority of preemptors.
func urgently(pod *v1.Pod) *v1.Pod {
	pod.Spec.PriorityClassName = urgent
	return pod
}

// stubbornPod works, gets SIGTERM, and goes on all the same until SIGKILL: first on its GPU, and without it when the
// agent has taken it away.
func stubbornPod(name string, slots int, grace int64) *v1.Pod {
	c := share("main", slots)
	c.Command = []string{"sh", "-c", tell + `trap 'asked=1; echo asked to end' TERM
tenant --in-flight --sm=5 --memory=64Mi &
while :; do
	sleep 0.5 &
	wait $!
	[ -z "$asked" ] || echo saves
done`}
	pod := newPod(name, c)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	return pod
}

// countingPod works and reports how much it has done.
func countingPod(name string, slots int) *v1.Pod {
	return newPod(name, work(slots, "--rate=100", fmt.Sprintf("--serve=:%d", stepsPort)))
}

// steps reads how much the program of a countingPod has done.
func (n *Tenant) steps(ctx context.Context, pod *v1.Pod) (float64, error) {
	address := fmt.Sprintf("http://%s:%d/metrics", pod.Status.PodIP, stepsPort)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("ask pod %s: %w", pod.Name, err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if number, ok := strings.CutPrefix(lines.Text(), "tenant_steps_total "); ok {
			return strconv.ParseFloat(number, 64)
		}
	}
	return 0, fmt.Errorf("ask pod %s: it answers %s without its steps", pod.Name, response.Status)
}

// onlyClient waits until the device has one client and returns its PID. The agent tries a client of its own now and then.
func (n *Tenant) onlyClient(uuid string) int {
	n.t.Helper()
	pid := 0
	n.await("the only client", func(context.Context) error {
		clients := fakegpu.ReadUsage(n.layout.state(), uuid).Clients
		if len(clients) != 1 {
			return fmt.Errorf("the device has the clients %+v", clients)
		}
		pid = clients[0].PID
		return nil
	})
	return pid
}

// serves fails the test if the process is no client of the device.
func (n *Tenant) serves(uuid string, pid int) {
	n.t.Helper()
	clients := fakegpu.ReadUsage(n.layout.state(), uuid).Clients
	if !slices.ContainsFunc(clients, func(c fakegpu.ClientUsage) bool { return c.PID == pid }) {
		n.t.Errorf("process %d is no client of the device any more, which has %+v", pid, clients)
	}
}

// course is the history of the pods of a namespace, in the order of the API server's events.
type course struct {
	n  *Tenant
	mu sync.Mutex
	// told counts the changes. bound, leaving and ended are the first changes at which a pod had a node, was in
	// deletion, and had ended for the scheduler: with a phase that is final, or gone.
	told                  int
	bound, leaving, ended map[string]int
	// due is the first known end of a pod's grace; last is the last known state of each pod.
	due  map[string]time.Time
	last map[string]*v1.Pod
}

// watchCourse begins to watch; the watch ends with the test.
func (n *Tenant) watchCourse() *course {
	n.t.Helper()
	c := &course{
		n: n, bound: map[string]int{}, leaving: map[string]int{}, ended: map[string]int{},
		due: map[string]time.Time{}, last: map[string]*v1.Pod{},
	}
	w, err := n.client.CoreV1().Pods(n.namespace).Watch(n.t.Context(), metav1.ListOptions{})
	n.must(err)
	n.t.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			if pod, ok := e.Object.(*v1.Pod); ok {
				c.note(pod, e.Type == watch.Deleted)
			}
		}
	}()
	return c
}

func (c *course) note(pod *v1.Pod, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told++
	c.last[pod.Name] = pod
	if pod.DeletionTimestamp != nil && c.leaving[pod.Name] == 0 {
		c.due[pod.Name] = pod.DeletionTimestamp.Time
	}
	final := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
	for _, fact := range []struct {
		holds bool
		since map[string]int
	}{
		{pod.Spec.NodeName != "", c.bound}, {pod.DeletionTimestamp != nil, c.leaving}, {gone || final, c.ended},
	} {
		if fact.holds && fact.since[pod.Name] == 0 {
			fact.since[pod.Name] = c.told
		}
	}
}

// seen returns the last known state of a pod, and the end of its grace.
func (c *course) seen(name string) (*v1.Pod, time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[name], c.due[name]
}

// evicted returns the names of the pods with a deletion so far.
func (c *course) evicted() map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := map[string]bool{}
	for name := range c.leaving {
		names[name] = true
	}
	return names
}

// follows returns nil when the first pod got its node after the other one had ended.
func (c *course) follows(first, other string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch bound, ended := c.bound[first], c.ended[other]; {
	case bound == 0 || ended == 0:
		return fmt.Errorf("pod %s was bound at change %d, pod %s ended at change %d", first, bound, other, ended)
	case bound < ended:
		return fmt.Errorf("pod %s was bound at change %d, before pod %s ended at change %d", first, bound, other, ended)
	}
	return nil
}

// disrupted returns the message of the pod's condition of its preemption.
func disrupted(pod *v1.Pod) (string, error) {
	if pod == nil {
		return "", errors.New("nothing is known of the pod")
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue {
			if c.Reason != v1.PodReasonPreemptionByScheduler {
				return "", fmt.Errorf("the condition's reason is %s", c.Reason)
			}
			return c.Message, nil
		}
	}
	return "", fmt.Errorf("the conditions are %+v", pod.Status.Conditions)
}
