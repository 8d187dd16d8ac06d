package proposal

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxPods bounds the pods of a file, and with that the time of a simulation.
const maxPods = 10_000

// strict reads objects and refuses fields that they do not have.
var strict = json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Yaml: true, Strict: true})

// Added are pods in addition to those of a snapshot, and their gangs.
type Added struct {
	Pods  []snapshot.Pending
	Gangs []snapshot.Gang
	// Notes say what of the file a simulation does not know, each once.
	Notes []string
}

// reader reads a file of pods.
type reader struct {
	namespace string
	created   time.Time
	added     Added
	groups    map[snapshot.GangName]int // least numbers of the PodGroups in the file
	gangs     map[snapshot.GangName]int // in added.Gangs
	pods      []*v1.Pod
	noted     map[string]bool
}

// Pods reads Pods, Jobs and PodGroups from YAML or JSON, separated by ---. Those without a namespace are in the given one, and all are
// created at a time. Nothing is added where anything in the file is not legal.
func Pods(raw []byte, namespace string, created time.Time) (*Added, error) {
	r := &reader{namespace: namespace, created: created, groups: map[snapshot.GangName]int{}, gangs: map[snapshot.GangName]int{}, noted: map[string]bool{}}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.read(document)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", number, err)
		}
	}
	if len(r.pods) == 0 {
		return nil, errors.New("there are no pods: legal are Pods and Jobs, with PodGroups")
	}
	for _, pod := range r.pods {
		if err := r.add(pod); err != nil {
			return nil, fmt.Errorf("pod %s: %w", kube.PathOf(pod), err)
		}
	}
	return &r.added, nil
}

// read reads one document.
func (r *reader) read(document []byte) error {
	var head metav1.TypeMeta
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	switch head.GroupVersionKind().GroupKind().String() {
	case "":
		if isEmpty(document) {
			return nil
		}
	case "Pod", "Job.batch":
		object, _, err := strict.Decode(document, nil, nil)
		if err != nil {
			return err
		}
		switch object := object.(type) {
		case *v1.Pod:
			return r.append(object)
		case *batchv1.Job:
			return r.job(object)
		}
	case "PodGroup.scheduling.k8s.io", "PodGroup.scheduling.x-k8s.io":
		return r.group(document)
	}
	return fmt.Errorf("kind: %q of %q, legal are Pod of v1, Job of batch/v1, and PodGroup of scheduling.k8s.io and scheduling.x-k8s.io", head.Kind, head.APIVersion)
}

// isEmpty reports whether a document has comments and blank lines alone.
func isEmpty(document []byte) bool {
	for line := range bytes.Lines(document) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func (r *reader) append(pod *v1.Pod) error {
	if pod.Name == "" {
		pod.Name = pod.GenerateName + fmt.Sprint(len(r.pods))
	}
	if pod.Namespace == "" {
		pod.Namespace = r.namespace
	}
	if len(r.pods) == maxPods {
		return fmt.Errorf("the file has more pods than are legal, %d", maxPods)
	}
	pod.UID = "" // add gives it one
	r.pods = append(r.pods, pod)
	return nil
}

// job adds the pods that a Job runs at once.
func (r *reader) job(job *batchv1.Job) error {
	parallelism := int32(1)
	if job.Spec.Parallelism != nil {
		parallelism = *job.Spec.Parallelism
	}
	if parallelism < 1 || parallelism > maxPods {
		return fmt.Errorf("job %s: spec.parallelism: %d, legal is 1 to %d", job.Name, parallelism, maxPods)
	}
	if n := job.Spec.Completions; n != nil && *n < 1 {
		return fmt.Errorf("job %s: spec.completions: %d, legal is 1 or more", job.Name, *n)
	} else if n != nil && *n > parallelism {
		r.note("pods that a Job creates when others have ended")
	} else if n != nil {
		parallelism = *n
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return fmt.Errorf("job %s: spec.suspend: true; legal is false, since a suspended Job has no pods", job.Name)
	}
	if job.Name == "" {
		job.Name = job.GenerateName + "job"
	}
	for i := range parallelism {
		pod := v1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
		pod.Name, pod.Namespace = fmt.Sprintf("%s-%d", job.Name, i), job.Namespace
		if pod.Spec.ActiveDeadlineSeconds == nil {
			pod.Spec.ActiveDeadlineSeconds = job.Spec.ActiveDeadlineSeconds
		}
		if err := r.append(&pod); err != nil {
			return fmt.Errorf("job %s: %w", job.Name, err)
		}
	}
	return nil
}

// group notes a PodGroup.
func (r *reader) group(document []byte) error {
	raw, err := yaml.YAMLToJSON(document)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil { // unlike package yaml it keeps whole numbers whole
		return err
	}
	if u.GetNamespace() == "" {
		u.SetNamespace(r.namespace)
	}
	g, err := membership.ReadPodGroup(u)
	if err != nil {
		return err
	}
	if len(g.Required) > 0 {
		r.note("topologies of gangs")
	}
	r.groups[snapshot.GangName{Source: u.GroupVersionKind().Group, Namespace: u.GetNamespace(), Name: u.GetName()}] = g.MinCount
	return nil
}

// note says once what a simulation does not know.
func (r *reader) note(what string) {
	if !r.noted[what] {
		r.noted[what] = true
		r.added.Notes = append(r.added.Notes, what)
	}
}

// add adds a pod. Its request is read as the scheduler reads it.
func (r *reader) add(pod *v1.Pod) error {
	request, err := r.request(pod)
	if err != nil {
		return err
	}
	gang, err := r.gangOf(pod)
	if err != nil {
		return err
	}
	out := snapshot.Pending{
		Name: snapshot.NameOf(kube.PathOf(pod), vgpu.UID(fmt.Sprintf("added-%05d", len(r.added.Pods)+1))), Gang: gang, Since: r.created,
		Request: snapshot.RequestOf(request, 0),
	}
	out.Request.EndsAfterSeconds, _ = kube.LongestRun(pod)
	r.added.Pods = append(r.added.Pods, out)
	return nil
}

func (r *reader) request(pod *v1.Pod) (*vgpu.Request, error) {
	spec := &pod.Spec
	kube.DefaultRequests(pod)
	if len(spec.SchedulingGates) > 0 {
		return nil, fmt.Errorf("spec.schedulingGates: %q; legal is none, since no scheduler tries such a pod", spec.SchedulingGates[0].Name)
	}
	if spec.Priority == nil && spec.PriorityClassName != "" {
		return nil, fmt.Errorf("spec.priorityClassName: %q, which a snapshot does not know; legal is its number in spec.priority", spec.PriorityClassName)
	}
	for _, key := range []string{v1alpha1.AnnotationRate, v1alpha1.AnnotationMaxLatency} {
		if _, has := pod.Annotations[key]; has {
			return nil, fmt.Errorf("%s: a snapshot does not have the curves of profiles; legal is a request for slots without it", kube.AnnotationPath(key))
		}
	}
	request, err := kube.Request(pod)
	if err != nil {
		return nil, err
	}
	if len(request.Containers) == 0 {
		return nil, fmt.Errorf("spec.containers[].resources.limits[%s]: no container has it; a simulation is of pods that ask for vGPUs", v1alpha1.ResourceVGPU)
	}
	if request.Host, err = kube.Host(pod); err != nil {
		return nil, err
	}
	if len(spec.NodeSelector) > 0 || spec.Affinity != nil || len(spec.TopologySpreadConstraints) > 0 {
		r.note("node selectors, affinities and spread constraints")
	}
	if request.MaxSlowdown > 0 {
		r.note("promised slowdowns")
	}
	if spec.NodeName != "" {
		r.note("spec.nodeName: the pod is one more, and waits for a place like any other")
	}
	return &request, nil
}

// everyPodGroup are the PodGroups of a cluster that has both kinds: a file says nothing of the cluster.
var everyPodGroup = podgroup.Served{Native: membership.NativePodGroups.Version, XK8s: true}

// gangOf returns the gang of a pod, nil for none. The least number of members is in the file, or on the pod.
func (r *reader) gangOf(pod *v1.Pod) (*snapshot.GangName, error) {
	ref, member := everyPodGroup.Of(pod)
	if !member {
		return nil, nil //nolint:nilnil // most pods are in no gang
	}
	if err := podgroup.Unnamed(ref); err != nil {
		return nil, err
	}
	name := snapshot.GangName{Source: string(ref.Source), Namespace: ref.Namespace, Name: ref.Name}
	least, known := r.groups[name]
	switch {
	case ref.Source == podgroup.Label:
		var err error
		if least, err = membership.MinMembers(pod); err != nil {
			return nil, err
		}
	case !known:
		return nil, fmt.Errorf("its PodGroup %s/%s is not in the file", name.Namespace, name.Name)
	}
	if pod.Annotations[v1alpha1.AnnotationRequiredTopology] != "" || pod.Annotations[v1alpha1.AnnotationPreferredTopology] != "" {
		r.note("topologies of gangs")
	}
	at, known := r.gangs[name]
	if !known {
		at = len(r.added.Gangs)
		r.gangs[name], r.added.Gangs = at, append(r.added.Gangs, snapshot.Gang{GangName: name, MinCount: least, Phase: "Unplaced", Need: "Incomplete"})
	}
	r.added.Gangs[at].Members++
	return &name, nil
}
