package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	// trainerJob is the Job of the workers, and their gang; trainerServers is the StatefulSet of the parameter servers.
	trainerJob, trainerServers = "trainer", "trainer-servers"
	// workTime is what a sample takes a worker, and bandwidth what a server moves in a second, in MB. A step has 48 samples and
	// each worker moves 8.4 MB: six workers are about 1.3 times as fast as three, on a machine that computes faster than that.
	workTime, bandwidth = "40ms", "100"
)

// createTrainer applies examples/elastic/trainer.yaml with workers of two slots, of which 2 to 6 may run, and with the speeds
// above. It needs no CPU of its own, since the node may have two cores.
func (n *Tenant) createTrainer() {
	n.t.Helper()
	root, err := sandbox.Root()
	n.must(err)
	raw, err := os.ReadFile(filepath.Join(root, "examples", "elastic", "trainer.yaml"))
	n.must(err)
	for document := range strings.SplitSeq(string(raw), "\n---\n") {
		var kind metav1.TypeMeta
		n.must(yaml.Unmarshal([]byte(document), &kind))
		switch kind.Kind {
		case "StatefulSet":
			var set appsv1.StatefulSet
			n.must(yaml.UnmarshalStrict([]byte(document), &set))
			inImage(&set.Spec.Template.Spec, "--bandwidth="+bandwidth)
			set.Namespace = n.namespace
			n.submit(set)
		case "Job":
			var job batchv1.Job
			n.must(yaml.UnmarshalStrict([]byte(document), &job))
			inImage(&job.Spec.Template.Spec, "--work="+workTime)
			job.Namespace, job.Spec.Completions, job.Spec.Parallelism, job.Spec.BackoffLimit = n.namespace, new(int32(6)), new(int32(6)), new(int32(0))
			job.Spec.Template.Annotations[v1alpha1.AnnotationMinMembers] = "2"
			job.Spec.Template.Annotations[v1alpha1.AnnotationElasticWorkers] = "2-6"
			job.Spec.Template.Spec.Containers[0].Resources = share("", 2).Resources
			n.submit(job)
		default:
			object := map[string]any{}
			n.must(yaml.Unmarshal([]byte(document), &object))
			n.must(unstructured.SetNestedField(object, n.namespace, "metadata", "namespace"))
			n.submit(object)
		}
	}
}

// inImage has a pod of the example run in the image of the run, with further arguments.
func inImage(pod *v1.PodSpec, args ...string) {
	c := &pod.Containers[0]
	c.Image, c.ImagePullPolicy, c.Command, c.Args = busyboxImage, v1.PullNever, []string{"trainer"}, append(c.Args, args...)
	c.Resources = v1.ResourceRequirements{}
	pod.SchedulerName, pod.AutomountServiceAccountToken = v1alpha1.SchedulerName, new(bool)
}

// scaleServers changes the number of parameter servers.
func (n *Tenant) scaleServers(count int) {
	n.t.Helper()
	patch := fmt.Sprintf(`{"spec": {"replicas": %d}}`, count)
	_, err := n.client.AppsV1().StatefulSets(n.namespace).Patch(n.t.Context(), trainerServers, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	n.must(err)
}

// step is a line that the first parameter server prints: a step of the training, or an event.
type step struct {
	Step    int
	Loss    float64
	Workers int
	Servers int
	Samples float64
	Seconds float64
	Event   string
	Name    string
}

// trainedSteps returns what the first parameter server has printed so far.
func (n *Tenant) trainedSteps() ([]step, error) {
	paths, err := filepath.Glob(filepath.Join(podLogs, n.namespace+"_"+trainerServers+"-0_*", "server", "*.log"))
	if err != nil || len(paths) != 1 {
		return nil, fmt.Errorf("the first parameter server has the logs %q: %w", paths, err)
	}
	file, err := os.Open(paths[0])
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var steps []step
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		_, text, found := strings.Cut(lines.Text(), " F {")
		var s step
		if found && json.Unmarshal([]byte("{"+text), &s) == nil {
			steps = append(steps, s)
		}
	}
	return steps, lines.Err()
}

// trainsWith waits until the training has done ten steps in a row with so many workers and parameter servers, and returns all
// that has been printed.
func (n *Tenant) trainsWith(workers, servers int) []step {
	n.t.Helper()
	const row = 10
	var steps []step
	n.await(fmt.Sprintf("ten steps with %d workers and %d servers", workers, servers), func(context.Context) (err error) {
		if steps, err = n.trainedSteps(); err != nil {
			return err
		}
		count := 0
		var last step
		for _, s := range steps {
			switch {
			case s.Event != "":
			case s.Workers == workers && s.Servers == servers:
				count++
				last = s
			default:
				count = 0
				last = s
			}
		}
		if count < row {
			return fmt.Errorf("the last step is %+v, the %d. of its kind", last, count)
		}
		return nil
	})
	return steps
}

// reportsWhatItDoes waits until the sum of the rates in the GPUNode is at most twice and at least half of what the first parameter
// server says of the last ten steps. Rates are smoothed over a minute, so the first ones may be far off.
func (n *Tenant) reportsWhatItDoes(workers []*v1.Pod) {
	n.t.Helper()
	n.await("rates that agree with the steps", func(context.Context) error {
		lines, err := n.trainedSteps()
		if err != nil {
			return err
		}
		lines = slices.DeleteFunc(lines, func(s step) bool { return s.Event != "" })
		last, before := lines[len(lines)-1], lines[len(lines)-11]
		done, said := (last.Samples-before.Samples)/(last.Seconds-before.Seconds), n.reported(workers)
		if said > 2*done || said < done/2 {
			return fmt.Errorf("%.1f samples a second are done, and the GPUNode says %.1f", done, said)
		}
		return nil
	})
}
