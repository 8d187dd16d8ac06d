package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// upFor and downFor are the phases of an agent that crashes again and again. The kubelet's status is two seconds late.
	upFor   = 3 * time.Second
	downFor = time.Second
	// crashPatience bounds the scenario. Pauses of the scheduler grow to minutes.
	crashPatience = 10 * time.Minute
	// backoffLimit is the usual one of a Job.
	backoffLimit = 6
)

// crashLoop: the agent crashes every few seconds, and a Job whose pods come one after the other works on. Each pod that the
// kubelet refuses costs a pause, and no pause costs a second pod.
func crashLoop(n *Tenant) {
	ctx, cancel := context.WithTimeout(n.t.Context(), crashPatience)
	defer cancel()
	n.createJob(ctx, "steps")
	refusals := 2 // that the kubelet must have made before the agent is left alone: the first, and one after a pause
	if smoke() {
		refusals = 1
	}
	refused, pauses := 0, 0
	for refused < refusals {
		n.agent.Stop(0)
		n.must(sleep(ctx, downFor))
		n.must(n.startAgent())
		n.must(poll(ctx, "a registered agent", n.registered))
		n.must(sleep(ctx, upFor))
		refused, _ = n.refusals(ctx)
	}
	n.must(n.awaitSlots(ctx))
	before := n.job(ctx, "steps").Status.Succeeded
	n.must(poll(ctx, "three more steps of the Job", func(ctx context.Context) error {
		if now := n.job(ctx, "steps").Status.Succeeded; now < before+3 {
			return fmt.Errorf("it had done %d steps when the agent was left alone, and now %d", before, now)
		}
		return nil
	}))
	n.await("a pause for each refused pod", func(ctx context.Context) error {
		if refused, pauses = n.refusals(ctx); refused > pauses {
			return fmt.Errorf("%d pods were refused in %d pauses, want at most one in each", refused, pauses)
		}
		return nil
	})
	n.t.Logf("%d pods were refused in %d pauses, while %d steps were done", refused, pauses, n.job(ctx, "steps").Status.Succeeded)
	n.notFailed(ctx, "steps")
	policy := metav1.DeletePropagationForeground
	n.must(n.client.BatchV1().Jobs(n.namespace).Delete(ctx, "steps", metav1.DeleteOptions{PropagationPolicy: &policy}))
	n.await("the end of the Job", func(ctx context.Context) error {
		list, err := n.client.BatchV1().Jobs(n.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = errors.New("it still exists")
		}
		return err
	})
}

// createJob creates a Job of many short steps, one at a time.
func (n *Tenant) createJob(ctx context.Context, name string) {
	n.t.Helper()
	c := share("main", 1)
	c.Command = []string{"sleep", "0.5"}
	p := newPod(name, c)
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	steps, one, limit := int32(100_000), int32(1), int32(backoffLimit)
	_, err := n.client.BatchV1().Jobs(n.namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.JobSpec{
			Completions: &steps, Parallelism: &one, BackoffLimit: &limit, Template: v1.PodTemplateSpec{Spec: p.Spec},
		},
	}, metav1.CreateOptions{})
	n.must(err)
}

func (n *Tenant) job(ctx context.Context, name string) *batchv1.Job {
	n.t.Helper()
	j, err := n.client.BatchV1().Jobs(n.namespace).Get(ctx, name, metav1.GetOptions{})
	n.must(err)
	return j
}

// notFailed fails the test if the Job has used up its backoffLimit.
func (n *Tenant) notFailed(ctx context.Context, name string) {
	n.t.Helper()
	for _, c := range n.job(ctx, name).Status.Conditions {
		if c.Type == batchv1.JobFailed || c.Type == batchv1.JobFailureTarget {
			n.t.Errorf("the Job has failed: %s: %s", c.Reason, c.Message)
		}
	}
}

// refusals counts the pods that the kubelet refused, and the pauses that the scheduler told of.
func (n *Tenant) refusals(ctx context.Context) (refused, pauses int) {
	n.t.Helper()
	pods, err := n.client.CoreV1().Pods(n.namespace).List(ctx, metav1.ListOptions{})
	n.must(err)
	for i := range pods.Items {
		s := &pods.Items[i].Status
		if s.Phase == v1.PodFailed && (s.Reason == "UnexpectedAdmissionError" || strings.HasPrefix(s.Reason, "OutOf")) {
			refused++
		}
	}
	events, err := n.client.CoreV1().Events(n.namespace).List(ctx, metav1.ListOptions{})
	n.must(err)
	for i := range events.Items {
		if events.Items[i].Reason == "NodePaused" {
			pauses++
		}
	}
	n.notFailed(ctx, "steps")
	return refused, pauses
}

// sleep lets the phases of a crashing agent pass.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
