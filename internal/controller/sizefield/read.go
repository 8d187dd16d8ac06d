package sizefield

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// number returns the reader of a kind with one field for its number. The label index has the number of a pod.
func number(index string, path ...string) func(*unstructured.Unstructured, []*v1.Pod) (Size, error) {
	return func(o *unstructured.Unstructured, _ []*v1.Pod) (Size, error) {
		n, err := whole(o.Object, path)
		return Size{Fields: [][]string{path}, Number: n, Per: 1, Index: index}, err
	}
}

// whole reads a whole number.
func whole(from any, path []string) (int, error) {
	switch n := at(from, path...).(type) {
	case int64:
		return int(n), nil
	case float64: // of an object that was made from a typed one
		return int(n), nil
	case nil:
		return 0, fmt.Errorf("%s is missing: set it", strings.Join(path, "."))
	}
	return 0, fmt.Errorf("%s is no whole number", strings.Join(path, "."))
}

// at returns what stands at a path, nil for nothing. A number in the path is the index of a list.
func at(from any, path ...string) any {
	for _, step := range path {
		switch container := from.(type) {
		case map[string]any:
			from = container[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(container) {
				return nil
			}
			from = container[i]
		default:
			return nil
		}
	}
	return from
}

// indexedJob reads a Job. Kubernetes lets the completions change where they are the parallelism too.
func indexedJob(o *unstructured.Unstructured, _ []*v1.Pod) (Size, error) {
	s, err := jobTemplate(o.Object, []string{"spec"})
	s.Least, s.Index = 1, batchv1.JobCompletionIndexAnnotation
	return s, err
}

// jobTemplate reads parallelism and completions of the spec of a Job at a path.
func jobTemplate(from map[string]any, path []string) (Size, error) {
	parallelism, completions := join(path, "parallelism"), join(path, "completions")
	s := Size{Fields: [][]string{parallelism, completions}, Per: 1}
	if mode := at(from, join(path, "completionMode")...); mode != string(batchv1.IndexedCompletion) {
		return s, fmt.Errorf("%s is not Indexed: the completions of such a Job cannot change", strings.Join(join(path, "completionMode"), "."))
	}
	var err error
	if s.Number, err = whole(from, parallelism); err != nil {
		return s, err
	}
	set := fmt.Sprintf("set %s equal to %s", strings.Join(completions, "."), strings.Join(parallelism, "."))
	switch n, err := whole(from, completions); {
	case at(from, completions...) == nil:
		return s, fmt.Errorf("%s is missing: %s", strings.Join(completions, "."), set)
	case err != nil:
		return s, err
	case n != s.Number:
		return s, fmt.Errorf("%s is %d, and %s is %d: %s", strings.Join(parallelism, "."), s.Number, strings.Join(completions, "."), n, set)
	}
	return s, nil
}

// replicatedJob reads a JobSet. The pods of one replicated Job form the gang. With one replica the number is that of the Job's
// pods; with several it is that of the replicas, and then never less than two, so that the meaning does not change.
func replicatedJob(o *unstructured.Unstructured, pods []*v1.Pod) (Size, error) {
	name := pods[0].Labels[jobSetJobLabel]
	for _, pod := range pods {
		if pod.Labels[jobSetJobLabel] != name || name == "" {
			return Size{}, errors.New("the pods of several replicatedJobs form one gang: leave the others out of the gang")
		}
	}
	i, job := element(at(o.Object, "spec", "replicatedJobs"), "name", name)
	if job == nil {
		return Size{}, fmt.Errorf("spec.replicatedJobs has none with the name %q", name)
	}
	path := []string{"spec", "replicatedJobs", strconv.Itoa(i)}
	replicas, err := whole(job, []string{"replicas"})
	if err != nil {
		return Size{}, fmt.Errorf("spec.replicatedJobs[%s]: %w", name, err)
	}
	pod, err := jobTemplate(o.Object, join(path, "template", "spec"))
	if replicas == 1 {
		pod.Least, pod.Index, pod.Counted = 1, batchv1.JobCompletionIndexAnnotation, map[string]string{jobSetJobLabel: name}
		return pod, err
	}
	each, err := whole(job, []string{"template", "spec", "parallelism"})
	if err != nil {
		return Size{}, fmt.Errorf("spec.replicatedJobs[%s]: %w", name, err)
	}
	return Size{
		Fields: [][]string{join(path, "replicas")}, Number: replicas, Per: max(each, 1), Least: 2, Index: jobSetIndexLabel,
		Counted: map[string]string{jobSetJobLabel: name},
	}, nil
}

// element returns the element of a list of objects in which a field has a value, and its index.
func element(list any, field, value string) (int, map[string]any) {
	all, _ := list.([]any)
	for i := range all {
		if o, ok := all[i].(map[string]any); ok && o[field] == value {
			return i, o
		}
	}
	return -1, nil
}

// workers returns the reader of a training job: the replicas of its workers change. Pods of other roles may be members too.
func workers(specs string) func(*unstructured.Unstructured, []*v1.Pod) (Size, error) {
	return func(o *unstructured.Unstructured, pods []*v1.Pod) (Size, error) {
		path := []string{"spec", specs, "Worker", "replicas"}
		s := Size{Fields: [][]string{path}, Per: 1, Least: 1, Index: trainIndexLabel, Counted: map[string]string{trainRoleLabel: "worker"}}
		if pods[0].Labels[trainRoleLabel] == "" { // the MPI operator has another label for the role
			s.Counted = map[string]string{mpiRoleLabel: "worker"}
		}
		var err error
		if s.Number, err = whole(o.Object, path); err != nil {
			return s, err
		}
		if at(o.Object, "spec", "elasticPolicy", "metrics") != nil {
			return s, errors.New("spec.elasticPolicy.metrics has the training operator make a HorizontalPodAutoscaler, which owns the number: remove the metrics")
		}
		if at(o.Object, "spec", "runLauncherAsWorker") == true {
			return s, errors.New("spec.runLauncherAsWorker has the MPI operator number the workers from 1, and then delete one too many: remove it")
		}
		roles, _ := at(o.Object, "spec", specs).(map[string]any)
		for role, spec := range roles {
			if role != "Worker" && namesGang(at(spec, "template"), pods[0]) {
				n, _ := whole(spec, []string{"replicas"})
				s.Others += max(n, 1) // the operators make one where none is said
			}
		}
		if n, err := whole(o.Object, []string{"spec", "elasticPolicy", "minReplicas"}); err == nil {
			s.Least = max(n, 1)
		}
		s.Most, _ = whole(o.Object, []string{"spec", "elasticPolicy", "maxReplicas"}) // 0 where there is none
		return s, nil
	}
}

// namesGang reports whether pods of a template are members of the gang of a pod.
func namesGang(template any, pod *v1.Pod) bool {
	gang := membership.GangsOf(pod)
	switch {
	case gang.Native != "":
		return at(template, "spec", "schedulingGroup", "podGroupName") == gang.Native
	case gang.XK8s != "":
		return at(template, "metadata", "labels", membership.LabelPodGroup) == gang.XK8s
	}
	return at(template, "metadata", "labels", v1alpha1.LabelGang) == gang.Label
}

// workerGroup reads a RayCluster. The pods of one worker group form the gang, and the head may be a member.
func workerGroup(o *unstructured.Unstructured, pods []*v1.Pod) (Size, error) {
	if at(o.Object, "spec", "enableInTreeAutoscaling") == true {
		return Size{}, errors.New("spec.enableInTreeAutoscaling has Ray's autoscaler own the number: remove it")
	}
	name := ""
	for _, pod := range pods {
		group := pod.Labels[rayGroupLabel]
		switch {
		case group == rayHeadGroup:
		case group == "" || name != "" && group != name:
			return Size{}, errors.New("the pods of several worker groups form one gang: leave the others out of the gang")
		default:
			name = group
		}
	}
	i, group := element(at(o.Object, "spec", "workerGroupSpecs"), "groupName", name)
	if group == nil {
		return Size{}, fmt.Errorf("spec.workerGroupSpecs has none with the groupName %q", name)
	}
	if hosts, err := whole(group, []string{"numOfHosts"}); err == nil && hosts > 1 {
		return Size{}, fmt.Errorf("spec.workerGroupSpecs[%s].numOfHosts is %d: only groups with one pod for each replica are resized", name, hosts)
	}
	path := []string{"spec", "workerGroupSpecs", strconv.Itoa(i)}
	s := Size{
		Fields: [][]string{join(path, "replicas")}, Per: 1, Counted: map[string]string{rayGroupLabel: name},
		Names: join(path, "scaleStrategy", "workersToDelete"), NamesParent: at(group, "scaleStrategy") != nil,
	}
	var err error
	if s.Number, err = whole(group, []string{"replicas"}); err != nil {
		return s, fmt.Errorf("spec.workerGroupSpecs[%s]: %w", name, err)
	}
	s.Least, _ = whole(group, []string{"minReplicas"}) // 0 where there is none
	s.Most, _ = whole(group, []string{"maxReplicas"})
	if namesGang(at(o.Object, "spec", "headGroupSpec", "template"), pods[0]) {
		s.Others = 1
	}
	return s, nil
}

// rayHeadGroup is the group of the head of a RayCluster.
const rayHeadGroup = "headgroup"

// statefulSet reads a StatefulSet, whose pods may be numbered from another number than 0.
func statefulSet(o *unstructured.Unstructured, pods []*v1.Pod) (Size, error) {
	s, err := number(statefulPodsLabel, "spec", "replicas")(o, pods)
	s.First, _ = whole(o.Object, []string{"spec", "ordinals", "start"}) // 0 where there is none
	return s, err
}

// join returns a path with further steps, in a slice of its own.
func join(path []string, steps ...string) []string {
	return append(append(make([]string, 0, len(path)+len(steps)), path...), steps...)
}
