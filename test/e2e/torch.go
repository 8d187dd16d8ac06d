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
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// torchSwitch is the environment variable that turns the test with PyTorch on, beside the Switch.
const torchSwitch = "TANDEM_E2E_TORCH"

// hostAccess is the label of namespaces whose pods may mount folders of the host (deploy/policies/host.yaml).
const hostAccess = v1alpha1.Domain + "/host-access"

// torchPath is where Debian's python3-torch has its package.
const torchPath = "/usr/lib/python3/dist-packages/torch"

// mayMountHost lets the pods of the namespace mount folders of the host, as an administrator does.
func (n *Tenant) mayMountHost() {
	n.t.Helper()
	patch := []byte(`{"metadata": {"labels": {"` + hostAccess + `": "allowed"}}}`)
	_, err := n.client.CoreV1().Namespaces().Patch(n.t.Context(), n.namespace, types.MergePatchType, patch, metav1.PatchOptions{})
	n.must(err)
}

// torchrunExample returns the objects of examples/elastic/torchrun.
func torchrunExample() (resmap.ResMap, error) {
	root, err := sandbox.Root()
	if err != nil {
		return nil, err
	}
	return krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, "examples", "elastic", "torchrun"))
}

// createTorchrun applies examples/elastic/torchrun, with the host's PyTorch in place of an image, and with other arguments of
// train.py behind those of the example.
func (n *Tenant) createTorchrun(args ...string) {
	n.t.Helper()
	objects, err := torchrunExample()
	n.must(err)
	for _, r := range objects.Resources() {
		n.must(r.SetNamespace(n.namespace))
		raw, err := r.AsYAML()
		n.must(err)
		if r.GetKind() != "Job" {
			n.must(n.plane.Apply(n.t.Context(), raw))
			continue
		}
		var job batchv1.Job
		n.must(yaml.UnmarshalStrict(raw, &job))
		onHost(&job.Spec.Template.Spec, args)
		n.submit(job)
	}
}

// onHost has the container of a pod use the host's programs.
func onHost(pod *v1.PodSpec, args []string) {
	c := &pod.Containers[0]
	c.Image, c.ImagePullPolicy, c.Args = hostImage, v1.PullNever, args
	c.Env = append(c.Env, v1.EnvVar{Name: "PATH", Value: "/usr/bin"}) // where Debian has its own Python
	pod.AutomountServiceAccountToken = new(bool)
	for _, path := range []string{"/usr", "/etc/alternatives", "/etc/ld.so.cache"} {
		name := strings.ToLower(strings.NewReplacer("/", "host-", ".", "-").Replace(filepath.Base(path)))
		pod.Volumes = append(pod.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}})
		c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
	pod.Volumes = append(pod.Volumes, v1.Volume{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
	c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: "tmp", MountPath: "/tmp"})
}

// trained is a line that train.py prints: an event, or a step with a loss.
type trained struct {
	Time    float64
	Event   string
	Step    int
	Loss    float64
	Workers int
}

// at returns when the line was printed.
func (l trained) at() time.Time { return time.UnixMicro(int64(1e6 * l.Time)) }

// training returns what the workers of the namespace have printed so far, by time. Worker 0 prints, which after a change may be
// in another pod, so all are read, those that are gone too.
func (n *Tenant) training() []trained {
	n.t.Helper()
	logs, err := filepath.Glob(filepath.Join(podLogs, n.namespace+"_*", "train", "*.log"))
	n.must(err)
	var lines []trained
	for _, path := range logs {
		file, err := os.Open(path)
		n.must(err)
		for s := bufio.NewScanner(file); s.Scan(); {
			_, text, found := strings.Cut(s.Text(), "]:{")
			var line trained
			if found && json.Unmarshal([]byte("{"+text), &line) == nil {
				lines = append(lines, line)
			}
		}
		n.must(file.Close())
	}
	slices.SortStableFunc(lines, func(a, b trained) int { return a.at().Compare(b.at()) })
	return lines
}

// trains waits until the training has done at least some steps with so many workers since their last start.
func (n *Tenant) trains(workers, steps int) {
	n.t.Helper()
	n.await(fmt.Sprintf("%d steps with %d workers", steps, workers), func(context.Context) error {
		began, last := -1, trained{}
		for _, l := range n.training() {
			if l.Event == "begins" {
				began = l.Step
			}
			last = l
		}
		if began < 0 || last.Workers != workers || last.Step < began+steps {
			return fmt.Errorf("the workers began at step %d, and the last line is %+v", began, last)
		}
		return nil
	})
}
