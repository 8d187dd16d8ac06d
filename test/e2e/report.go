package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// tailLines is how much of a log a failed test shows.
const tailLines = 40

// report prints the pods and events of a namespace, the node's devices and the ends of Tandem's logs.
func (c *Cluster) report(ctx context.Context, t *testing.T, namespace string) {
	var b strings.Builder
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(&b, "list pods: %v\n", err)
	} else {
		for i := range pods.Items {
			describe(&b, &pods.Items[i])
		}
	}
	events, err := c.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(&b, "list events: %v\n", err)
	} else {
		slices.SortStableFunc(events.Items, func(a, b v1.Event) int {
			return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
		})
		for _, e := range events.Items[max(0, len(events.Items)-tailLines):] {
			fmt.Fprintf(&b, "event %s/%s %s: %s\n", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
	gpuNodes := c.dynamic.Resource(v1alpha1.GPUNodes)
	if node, err := gpuNodes.Get(ctx, nodeName, metav1.GetOptions{}); err != nil {
		fmt.Fprintf(&b, "get GPUNode: %v\n", err)
	} else if status, err := yaml.Marshal(node.Object["status"]); err == nil {
		fmt.Fprintf(&b, "GPUNode %s:\n%s", nodeName, status)
	}
	targets, err := c.dynamic.Resource(v1alpha1.ElasticTargets).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		fmt.Fprintf(&b, "list ElasticTargets: %v\n", err)
	} else {
		for i := range targets.Items {
			t := &targets.Items[i]
			if target, err := yaml.Marshal(map[string]any{"spec": t.Object["spec"], "status": t.Object["status"]}); err == nil {
				fmt.Fprintf(&b, "ElasticTarget %s:\n%s", t.GetName(), target)
			}
		}
	}
	for _, p := range []*sandbox.Process{c.agent, c.mpsHost, c.scheduler, c.controller} {
		if p == nil { // it runs in a pod
			continue
		}
		fmt.Fprintf(&b, "--- the end of %s\n%s\n", p.Log(), p.Tail(tailLines))
	}
	t.Logf("namespace %s:\n%s", namespace, b.String())
}

func describe(b *strings.Builder, pod *v1.Pod) {
	fmt.Fprintf(b, "pod %s: %s on %q %s, assignment %s\n", pod.Name, pod.Status.Phase, pod.Spec.NodeName,
		pod.Status.Message, pod.Annotations[v1alpha1.AnnotationAssignment])
	for _, s := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		state := "runs"
		switch {
		case s.State.Waiting != nil:
			state = "waits: " + s.State.Waiting.Reason + ": " + s.State.Waiting.Message
		case s.State.Terminated != nil:
			state = fmt.Sprintf("ended with %d: %s", s.State.Terminated.ExitCode, s.State.Terminated.Message)
		}
		fmt.Fprintf(b, "  container %s %s, %d restarts\n", s.Name, state, s.RestartCount)
	}
}

// reportProcesses prints the ends of all logs.
func (c *Cluster) reportProcesses(t *testing.T) {
	if c.plane != nil {
		t.Log(c.plane.Logs(tailLines))
	}
}
