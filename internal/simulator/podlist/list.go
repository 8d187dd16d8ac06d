package podlist

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// columns of the list.
var columns = []string{"namespace", "name", "submitted", "duration_seconds", "gpus", "cpus", "memory_gib", "gpu_memory_gib", "gpu_models", "priority"}

// Options say which pods are listed, and how.
type Options struct {
	// Slots are those of each device of Tandem: so many tandem-gpu.io/vgpu are one GPU. Legal are 1 to 1000.
	Slots int64
	// WithoutGPUs lists pods without GPUs too.
	WithoutGPUs bool
}

// Count is how many pods something is true of.
type Count struct {
	Pods int
	What string
	// Example is the first of the pods.
	Example string
}

// String writes "3 pods (team-a/x, …): what".
func (c *Count) String() string {
	example := c.Example
	if c.Pods > 1 {
		example += ", …"
	}
	return fmt.Sprintf("%s (%s): %s", csvtable.Plural(c.Pods, "pod"), example, c.What)
}

// List is the jobs of pods.
type List struct {
	rows [][]string
	// Left counts the pods that are not in the list, and Changed those that are in it otherwise than in the cluster, by reason, most pods first.
	Left, Changed []Count
	// Models are the names of the GPU models that the jobs want, sorted.
	Models []string
	seen   map[string]bool
}

// Len returns the number of jobs.
func (l *List) Len() int { return len(l.rows) }

// Write writes the list as CSV. traces.Read reads it.
func (l *List) Write(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	return out.WriteAll(l.rows)
}

// Of makes the list of jobs of pods, in the order of their creation.
func Of(pods []*v1.Pod, o Options) *List {
	l := &List{seen: map[string]bool{}}
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(kube.PathOf(a), kube.PathOf(b)))
	})
	for _, pod := range pods {
		row, notes, why := l.row(pod, o)
		if why != "" {
			l.Left = count(l.Left, why, pod)
			continue
		}
		l.rows = append(l.rows, row)
		for _, note := range slices.Compact(slices.Sorted(slices.Values(notes))) {
			l.Changed = count(l.Changed, note, pod)
		}
	}
	for _, all := range [][]Count{l.Left, l.Changed} {
		slices.SortStableFunc(all, func(a, b Count) int { return cmp.Compare(b.Pods, a.Pods) })
	}
	slices.Sort(l.Models)
	l.Models = slices.Compact(l.Models)
	return l
}

func count(all []Count, what string, pod *v1.Pod) []Count {
	at := slices.IndexFunc(all, func(c Count) bool { return c.What == what })
	if at < 0 {
		return append(all, Count{Pods: 1, What: what, Example: kube.PathOf(pod)})
	}
	all[at].Pods++
	return all
}

// row returns the job of a pod, with what is otherwise in the cluster, or why the list leaves the pod out.
func (l *List) row(pod *v1.Pod, o Options) (row, notes []string, why string) {
	if why := ofNode(pod); why != "" {
		return nil, nil, why
	}
	kube.DefaultRequests(pod)
	host, err := kube.Host(pod)
	if err != nil {
		return nil, nil, err.Error()
	}
	gpus, err := gpusOf(pod, o.Slots)
	switch {
	case err != nil:
		return nil, nil, err.Error()
	case gpus.milli == 0 && gpus.other != "" && !o.WithoutGPUs:
		return nil, nil, fmt.Sprintf("no container asks for GPUs by a name that is known here, and one asks for %s", gpus.other)
	case gpus.milli == 0 && !o.WithoutGPUs:
		return nil, nil, "no container asks for GPUs"
	}
	duration, why := durationOf(pod)
	if why != "" {
		return nil, nil, why
	}
	row = []string{
		pod.Namespace, pod.Name, pod.CreationTimestamp.UTC().Format(time.RFC3339), duration, thousandth(gpus.milli), thousandth(host.MilliCPU),
		gibibytes(int64(host.Memory)), gibibytes(gpus.memory), strings.Join(gpus.models, "|"), priorityOf(pod),
	}
	if gpus.memory == 0 {
		row[7] = "" // in proportion
	}
	if why := unreadable(row); why != "" {
		return nil, nil, why
	}
	path := kube.PathOf(pod)
	if l.seen[path] {
		return nil, nil, "a pod of the same name is in the file already"
	}
	l.seen[path] = true
	l.Models = append(l.Models, gpus.models...)
	return row, append(gpus.notes, otherwise(pod, &gpus)...), ""
}

// ofNode returns why a pod comes with its node, "" for others.
func ofNode(pod *v1.Pod) string {
	owner := metav1.GetControllerOf(pod)
	switch {
	case pod.Annotations[v1.MirrorPodAnnotationKey] != "", owner != nil && owner.Kind == "Node":
		return "static pods, which come with their nodes"
	case owner != nil && owner.Kind == "DaemonSet":
		return "of DaemonSets, which have a pod on each node: take what these hold off the nodes of the scenario"
	}
	return ""
}

// durationOf returns for how many seconds a pod ran, "" for one that has not ended.
func durationOf(pod *v1.Pod) (seconds, why string) {
	if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
		return "", ""
	}
	var last time.Time
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if t := list[i].State.Terminated; t != nil && t.FinishedAt.After(last) {
				last = t.FinishedAt.Time
			}
		}
	}
	if last.IsZero() || pod.Status.StartTime == nil {
		return "", "ended, and no container says when: most such pods never ran"
	}
	return strconv.FormatInt(max(0, int64(last.Sub(pod.Status.StartTime.Time)/time.Second)), 10), ""
}

// otherwise returns what a list does not have of a pod.
func otherwise(pod *v1.Pod, gpus *held) (notes []string) {
	if names := membership.GangsOf(pod); names.Grouped || names.XK8s != "" || names.Label != "" {
		notes = append(notes, "each member of a gang is a row of its own: one row with members in place of them starts them together")
	}
	if gpus.other != "" {
		notes = append(notes, fmt.Sprintf("%s is not in the list", gpus.other))
	}
	spec := &pod.Spec
	if spec.NodeSelector["cloud.google.com/gke-gpu-sharing-strategy"] != "" {
		notes = append(notes, "a GPU that several clients share counts as a whole one: no request says how much of it a pod takes")
	}
	if len(spec.NodeSelector) > 0 && len(gpus.models) == 0 || len(spec.NodeSelector) > 1 || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 {
		notes = append(notes, "node selectors, affinities and spread constraints are not in the list, but for one GPU model by name")
	}
	return notes
}

// unreadable returns what the reader of lists says against a row, "" for nothing.
func unreadable(row []string) string {
	var text strings.Builder
	out := csv.NewWriter(&text)
	_ = out.WriteAll([][]string{columns, row}) // a strings.Builder takes all
	_, err := traces.Read(strings.NewReader(text.String()), "")
	if e := (*csvtable.Error)(nil); errors.As(err, &e) {
		return fmt.Sprintf("a list cannot have it: column %s: found %s, want %s", e.Column, e.Value, e.Legal)
	}
	return ""
}

func priorityOf(pod *v1.Pod) string {
	if pod.Spec.Priority == nil {
		return "0"
	}
	return strconv.FormatInt(int64(*pod.Spec.Priority), 10)
}

func thousandth(milli int64) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// gibibytes writes bytes in GiB, rounded up to whole MiB as the reader does.
func gibibytes(bytes int64) string {
	mib := (bytes + int64(vgpu.MiB) - 1) / int64(vgpu.MiB)
	return strconv.FormatFloat(float64(mib)/1024, 'f', -1, 64)
}
