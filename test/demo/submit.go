package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// submitAll creates the pods as the user, each when the one before it runs or has failed. Together they would reach the
// scheduler in an order that depends on the speed of the machine, and not in every order they all fit.
func (c *cluster) submitAll(ctx context.Context, out *terminal, all []workload) error {
	out.say("jane submits %d pods, one after the other", len(all))
	for _, w := range all {
		if _, err := c.user.CoreV1().Pods(namespace).Create(ctx, w.pod(), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", w.name, err)
		}
		if err := c.awaitPod(ctx, out, w); err != nil {
			return err
		}
	}
	return nil
}

// awaitPod waits until a pod runs or has failed.
func (c *cluster) awaitPod(ctx context.Context, out *terminal, w workload) error {
	err := poll(ctx, func() error {
		if err := c.schedulerRuns(); err != nil {
			return err
		}
		pod, err := c.user.CoreV1().Pods(namespace).Get(ctx, w.name, metav1.GetOptions{})
		if err != nil {
			return fatal{err}
		}
		if pod.Status.Phase != v1.PodRunning && pod.Status.Phase != v1.PodFailed {
			return fmt.Errorf("it is %s", strings.ToLower(string(pod.Status.Phase)))
		}
		out.say("  %-13s %-7s on %-7s %s", pod.Name, strings.ToLower(string(pod.Status.Phase)), pod.Spec.NodeName, w.why)
		return nil
	})
	if err == nil {
		return nil
	}
	why, _ := c.reason(context.WithoutCancel(ctx), w.name)
	return fmt.Errorf("wait for pod %s: %w; its last warning: %q", w.name, err, why)
}

// schedulerRuns returns an error that ends polling once the scheduler has ended: nothing starts it anew here.
func (c *cluster) schedulerRuns() error {
	select {
	case <-c.running.Done():
		return fatal{errors.Join(errors.New("the scheduler ended"), c.running.Err())}
	default:
		return nil
	}
}

// answered is a refusal with the words of the answer.
type answered struct {
	refusal
	message string
	// denied says that the API server took no such pod.
	denied bool
}

// submitRefused creates the impossible pods, after the others run, and waits for the reasons.
func (c *cluster) submitRefused(ctx context.Context, out *terminal, all []refusal) ([]answered, error) {
	out.say("jane submits %d pods that must be refused", len(all))
	answers := make([]answered, 0, len(all))
	for _, r := range all {
		a := answered{refusal: r}
		err := poll(ctx, func() error { return c.submitOneRefused(ctx, &a) })
		if err != nil {
			return nil, fmt.Errorf("wait for the refusal of pod %s: %w", r.name, err)
		}
		verb := "waits: "
		if a.denied {
			verb = "denied:"
		}
		out.say("  %-13s %s %s", r.name, verb, r.why)
		answers = append(answers, a)
	}
	return answers, nil
}

// submitOneRefused polls until the answer is there. For a pod that the API server must deny at once it uses a dry run:
// the API server may not have read a new policy yet.
func (c *cluster) submitOneRefused(ctx context.Context, a *answered) error {
	options := metav1.CreateOptions{}
	if a.atOnce {
		options.DryRun = []string{metav1.DryRunAll}
	}
	_, err := c.user.CoreV1().Pods(namespace).Create(ctx, a.pod(), options)
	switch {
	case a.atOnce && err == nil:
		return errors.New("it was not denied")
	case a.atOnce:
		a.message, a.denied = err.Error(), true
		return nil
	case err != nil && !apierrors.IsAlreadyExists(err):
		return fatal{err}
	}
	if err := c.schedulerRuns(); err != nil {
		return err
	}
	a.message, err = c.reason(ctx, a.name)
	if err == nil && a.message == "" {
		err = errors.New("no event tells a reason")
	}
	return err
}

// reason returns the message of the latest warning event of a pod.
func (c *cluster) reason(ctx context.Context, name string) (string, error) {
	events, err := c.admin.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
	if err != nil {
		return "", err
	}
	message := ""
	var latest metav1.Time
	for _, e := range events.Items {
		if e.Type == v1.EventTypeWarning && (message == "" || latest.Before(&e.CreationTimestamp)) {
			message, latest = e.Reason+": "+e.Message, e.CreationTimestamp
		}
	}
	return message, nil
}

// observe reads the cluster's reports: assignments from the pods, devices from the GPUNodes, containers from the
// kubelets' record, drift from the agents' metrics.
func (c *cluster) observe(ctx context.Context) (*report, error) {
	r := &report{pods: map[string]*observed{}}
	for _, n := range c.nodes {
		g, err := c.gpuNode(ctx, n.name)
		if err != nil {
			return nil, err
		}
		devices, err := kube.Devices(g)
		if err != nil {
			return nil, err
		}
		for _, d := range devices {
			r.devices = append(r.devices, device{node: n.name, Device: d})
		}
		r.containers = append(r.containers, n.kubelet.Containers()...)
		drift, err := readMetric(ctx, n.metrics, "tandem_agent_assignment_drift")
		if err != nil {
			return nil, fmt.Errorf("read metrics of %s: %w", n.name, err)
		}
		r.drift += drift
	}
	for _, w := range workloads() {
		pod, err := c.user.CoreV1().Pods(namespace).Get(ctx, w.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		o := &observed{workload: w, phase: pod.Status.Phase, uid: string(pod.UID)}
		o.assignment, o.broken = kube.AssignmentOf(pod)
		r.pods[w.name] = o
		r.order = append(r.order, w.name)
	}
	return r, nil
}
