package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	namespace = "default"
	// gangSize is how many members each gang has.
	gangSize = 4
	// patience with one run. Only a hang reaches it.
	patience = 10 * time.Minute
)

// workload is what one run schedules.
type workload struct{ nodes, gangs, pods int }

func (w workload) total() int { return w.gangs*gangSize + w.pods }

// run schedules the workload on a control plane of its own, by a scheduler with a changed configuration of deploy/.
func (w workload) run(ctx context.Context, binary string, change func(map[string]any)) (result, error) {
	plane, err := sandbox.Start(ctx, sandbox.Options{})
	if err != nil {
		return result{}, err
	}
	defer plane.Stop()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := plane.InstallCRDs(ctx); err != nil {
		return result{}, err
	}
	if err := w.addNodes(ctx, plane); err != nil {
		return result{}, err
	}
	admin, err := kubernetes.NewForConfig(plane.Admin())
	if err != nil {
		return result{}, err
	}
	metrics, err := startScheduler(ctx, plane, binary, change)
	if err != nil {
		return result{}, err
	}
	bound, err := w.watchBound(ctx, admin)
	if err != nil {
		return result{}, err
	}
	start := time.Now()
	if err := w.create(ctx, admin); err != nil {
		return result{}, err
	}
	select {
	case end := <-bound:
		doubts, err := metrics.doubts(ctx)
		return result{podsPerSecond: float64(w.total()) / end.Sub(start).Seconds(), doubts: doubts}, err
	case <-ctx.Done():
		return result{}, fmt.Errorf("not all pods were bound in time\n%s", plane.Logs(20))
	}
}

// startScheduler starts the scheduler, and returns when it answers.
func startScheduler(ctx context.Context, plane *sandbox.ControlPlane, binary string, change func(map[string]any)) (*metrics, error) {
	root, err := sandbox.Root()
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "scheduler", "config.yaml"))
	if err != nil {
		return nil, err
	}
	kubeconfig, err := plane.Kubeconfig("tandem-scheduler", []string{"system:masters"})
	if err != nil {
		return nil, err
	}
	config, err := sandbox.SchedulerConfig(raw, kubeconfig)
	if err != nil {
		return nil, err
	}
	change(config)
	if raw, err = yaml.Marshal(config); err != nil {
		return nil, err
	}
	path := filepath.Join(plane.Dir(), "scheduler.yaml")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		return nil, err
	}
	ports, err := sandbox.FreePorts(1)
	if err != nil {
		return nil, err
	}
	process, err := plane.Processes().Start("scheduler", exec.Command(binary, "--config="+path, "--leader-elect=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", ports[0]), "--snapshot-secure-port=0", "--authentication-skip-lookup",
		"--authorization-always-allow-paths=/readyz,/metrics"))
	if err != nil {
		return nil, err
	}
	m := newMetrics(fmt.Sprintf("https://127.0.0.1:%d", ports[0]))
	return m, m.awaitReady(ctx, process)
}

// create creates all pods, as fast as the API server takes them.
func (w workload) create(ctx context.Context, client kubernetes.Interface) error {
	return each(w.total(), func(i int) error {
		_, err := client.CoreV1().Pods(namespace).Create(ctx, w.pod(i), metav1.CreateOptions{})
		return err
	})
}

// pod returns the i-th pod: members of gangs and pods of their own come mixed, as long as there are both.
func (w workload) pod(i int) *v1.Pod {
	amounts := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("500Mi"),
		v1alpha1.ResourceVGPU: resource.MustParse("3"),
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%04d", i)},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: amounts, Requests: amounts},
		}}},
	}
	block, gang := i/gangSize, -1
	switch both := min(w.gangs, w.pods/gangSize); {
	case block < 2*both && block%2 == 0:
		gang = block / 2
	case block >= 2*both && block-both < w.gangs:
		gang = block - both
	}
	if gang >= 0 {
		p.Labels = map[string]string{v1alpha1.LabelGang: fmt.Sprintf("gang-%d", gang)}
		p.Annotations = map[string]string{v1alpha1.AnnotationMinMembers: fmt.Sprint(gangSize)}
	}
	return p
}

// each calls a function with 0 to n − 1, some at a time, and returns the errors.
func each(n int, do func(int) error) error {
	const writers = 8
	next, errs := make(chan int), make(chan error, writers)
	for range writers {
		go func() {
			var failed error
			for i := range next {
				if failed == nil {
					failed = do(i)
				}
			}
			errs <- failed
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	var messages []string
	for range writers {
		if err := <-errs; err != nil {
			messages = append(messages, err.Error())
		}
	}
	if len(messages) > 0 {
		return fmt.Errorf("%s", strings.Join(messages, "; "))
	}
	return nil
}
