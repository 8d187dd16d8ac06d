package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestTorchrun: a training with torchrun of PyTorch runs with 2, 4 and 2 workers, and goes on from its checkpoint each time.
func TestTorchrun(t *testing.T) {
	if os.Getenv(torchSwitch) == "" {
		t.Skipf("needs Debian's python3-torch (650 MB) and nine minutes: run make e2e-torch, which installs it and sets %s=1", torchSwitch)
	}
	if _, err := os.Stat(torchPath); err != nil {
		t.Fatalf("PyTorch is not there: %v: install Debian's python3-torch", err)
	}
	c := Start(t)
	t.Run("torchrun", func(t *testing.T) { torchrun(c.Tenant(t, "torchrun")) })
}

// TestTorchrunExample: values that the example has twice agree. It needs no cluster.
func TestTorchrunExample(t *testing.T) {
	objects, err := torchrunExample()
	must.OK(t, err)
	kinds := map[string]int{}
	for _, r := range objects.Resources() {
		kinds[r.GetKind()+" "+r.GetName()]++
		if r.GetKind() != "Job" {
			continue
		}
		raw, err := r.AsYAML()
		must.OK(t, err)
		var job batchv1.Job
		must.OK(t, yaml.UnmarshalStrict(raw, &job))
		pod := &v1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
		sizes, err := membership.ElasticSizes(pod.Annotations, 2)
		if err != nil || fmt.Sprint(sizes) != "[2 3 4]" || *job.Spec.Parallelism != 4 || *job.Spec.Completions != 4 {
			t.Errorf("the sizes are %v (%v), for %d pods and %d completions", sizes, err, *job.Spec.Parallelism, *job.Spec.Completions)
		}
		if metric, given, err := kube.RateMetricOf(pod); err != nil || !given || metric.Port != 9400 || metric.Name != "train_samples_total" {
			t.Errorf("the rate is from %+v, %t, %v", metric, given, err)
		}
		c := pod.Spec.Containers[0]
		if script := strings.Join(c.Command, " "); !strings.Contains(script, " --nnodes=2:4 ") || !strings.Contains(script, "--rdzv_endpoint="+job.Name+"-0."+pod.Spec.Subdomain+":") {
			t.Errorf("the command is %s", script)
		}
	}
	if diff := cmp.Diff(map[string]int{"Job torchrun": 1, "Service torchrun": 1, "ConfigMap torchrun": 1}, kinds); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func torchrun(n *Tenant) {
	const checkpointEvery = 5
	n.mayMountHost()
	n.create(newPod("other", share("main", slotsPerGPU)))
	n.running("other")
	begin := time.Now()
	n.createTorchrun("--pace=0.1", fmt.Sprintf("--checkpoint-every=%d", checkpointEvery))
	two := n.workers("torchrun", 2)
	n.trains(2, 20)
	n.t.Logf("2 workers were at work %.1f s after they were sent; they grow when they have run for five and a half minutes", time.Since(begin).Seconds())
	n.reported(two)

	n.delete("other")
	n.workers("torchrun", 4)
	n.t.Logf("4 workers ran %.0f s after the job was sent", time.Since(begin).Seconds())
	n.trains(4, 50)
	grown := n.resized("torchrun", 1)
	pause := n.pause(n.training(), 4)
	n.t.Logf("growing: no work for %.1f s, learned %.0f s", pause.Seconds(), grown.Seconds())
	n.plausible("growing", grown, pause)

	begin = time.Now()
	n.running(n.crowd("crowd", slotsPerGPU)...)
	n.workers("torchrun", 2)
	n.t.Logf("the gang ran %.1f s after it was sent", time.Since(begin).Seconds())
	n.trains(2, 50)
	mean := n.resized("torchrun", 2)
	lines := n.training()
	pause = n.pause(lines, 2)
	n.t.Logf("shrinking: no work for %.1f s, learned %.0f s, which with the first is %.0f s in the mean", pause.Seconds(), (2*mean - grown).Seconds(), mean.Seconds())
	n.plausible("shrinking", 2*mean-grown, pause)
	n.resumes(lines, checkpointEvery)
	n.noFailures("torchrun")
}

// pause returns how long no worker trained before the last start with so many workers.
func (n *Tenant) pause(lines []trained, workers int) time.Duration {
	n.t.Helper()
	for i := range slices.Backward(lines) {
		if l := lines[i]; l.Event != "begins" || l.Workers != workers {
			continue
		}
		for _, before := range slices.Backward(lines[:i]) {
			if before.Event == "" {
				return lines[i].at().Sub(before.at())
			}
		}
	}
	n.t.Fatalf("the training never began with %d workers after others", workers)
	return 0
}

// plausible checks a learned cost against the time for which nobody trained. The agent asks each second, and a busy machine later.
func (n *Tenant) plausible(what string, learned, pause time.Duration) {
	n.t.Helper()
	if learned < pause-5*time.Second || learned > pause+15*time.Second {
		n.t.Errorf("%s: no work for %.1f s, and %.0f s were learned", what, pause.Seconds(), learned.Seconds())
	}
}

// resumes checks that each life of the workers went on from the last checkpoint of the one before, and that the loss fell.
func (n *Tenant) resumes(lines []trained, checkpointEvery int) {
	n.t.Helper()
	var first, last trained
	for i, l := range lines {
		if l.Event == "begins" && i > 0 {
			before := lines[i-1]
			n.t.Logf("%d workers at step %d became %d workers at step %d", before.Workers, before.Step, l.Workers, l.Step)
			if l.Step < before.Step || l.Step > before.Step+checkpointEvery {
				n.t.Errorf("the workers began at step %d, and the last checkpoint was of step %d or the one after it", l.Step, before.Step)
			}
		}
		if l.Event == "" {
			if first.Step == 0 {
				first = l
			}
			last = l
		}
	}
	n.t.Logf("the loss fell from %.4f at step %d to %.4f at step %d", first.Loss, first.Step, last.Loss, last.Step)
	if last.Loss > first.Loss/2 {
		n.t.Errorf("the loss went from %.4f to %.4f, want half of it at most", first.Loss, last.Loss)
	}
}
