package elasticity

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// jobWith returns a Job that ignores disruptions, with a change.
func jobWith(change func(*batchv1.Job)) *batchv1.Job {
	j := jobOf("train", 4)
	change(j)
	return j
}

// rules returns a Job with these rules for failures.
func rules(list ...batchv1.PodFailurePolicyRule) *batchv1.Job {
	return jobWith(func(j *batchv1.Job) { j.Spec.PodFailurePolicy.Rules = list })
}

// autoscaler returns a HorizontalPodAutoscaler of a workload.
func autoscaler(namespace, kind, name string) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "hpa"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: kind, Name: name}},
	}
}

// replicaSet returns a ReplicaSet of a Deployment, of none for "".
func replicaSet(deployment string) *appsv1.ReplicaSet {
	s := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train"}}
	if deployment != "" {
		s.OwnerReferences = owned("apps/v1", "Deployment", deployment)
	}
	return s
}

// statefulSet returns the StatefulSet train with a controller, or with none for "".
func statefulSet(apiVersion, kind string) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "train", UID: "uid-train"}}
	if kind != "" {
		s.OwnerReferences = owned(apiVersion, kind, "lead")
	}
	return s
}

func TestResizable(t *testing.T) {
	set, other := statefulSet("", ""), statefulSet("", "")
	other.UID = "other"

	ignore := jobOf("", 0).Spec.PodFailurePolicy.Rules[0]
	onCode := func(action batchv1.PodFailurePolicyAction) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: "In", Values: []int32{143}}}
	}
	onCondition := func(action batchv1.PodFailurePolicyAction, kind v1.PodConditionType, status v1.ConditionStatus) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{Action: action, OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: kind, Status: status}}}
	}
	tests := []struct {
		name    string
		owner   []metav1.OwnerReference // nil for the Job
		objects []runtime.Object
		want    string // the reason
		most    int
		says    string
	}{
		{"a Job that ignores disruptions", nil, []runtime.Object{jobOf("train", 4)}, reasonHeldMembers, 4, "Job train"},
		{"a Job without a parallelism", nil, []runtime.Object{jobWith(func(j *batchv1.Job) { j.Spec.Parallelism = nil })}, reasonHeldMembers, 0, ""},
		{"a Job without a policy", nil, []runtime.Object{jobWith(func(j *batchv1.Job) { j.Spec.PodFailurePolicy = nil })}, reasonFailuresCount, 0, "failure of Job train: give it a podFailurePolicy"},
		{"a Job without rules", nil, []runtime.Object{rules()}, reasonFailuresCount, 0, ""},
		{"a rule for codes comes first", nil, []runtime.Object{rules(onCode("FailJob"), ignore)}, reasonFailuresCount, 0, ""},
		{"a rule that ignores codes comes first", nil, []runtime.Object{rules(onCode("Ignore"), ignore)}, reasonHeldMembers, 4, ""},
		{"a rule for codes comes last", nil, []runtime.Object{rules(ignore, onCode("FailJob"))}, reasonHeldMembers, 4, ""},
		{"a rule that counts disruptions comes first", nil, []runtime.Object{rules(onCondition("Count", v1.DisruptionTarget, v1.ConditionTrue), ignore)}, reasonFailuresCount, 0, ""},
		{"a rule for another condition comes first", nil, []runtime.Object{rules(onCondition("FailJob", "ConfigIssue", v1.ConditionTrue), ignore)}, reasonHeldMembers, 4, ""},
		{"a rule for pods without a disruption comes first", nil, []runtime.Object{rules(onCondition("FailJob", v1.DisruptionTarget, v1.ConditionFalse), ignore)}, reasonHeldMembers, 4, ""},
		{"a Job that Kueue changes", nil, []runtime.Object{jobWith(func(j *batchv1.Job) { j.Annotations = map[string]string{"kueue.x-k8s.io/elastic-job": "true"} })},
			reasonOwnSize, 0, "kueue.x-k8s.io/elastic-job"},
		{"a Job that Kueue makes smaller", nil, []runtime.Object{jobWith(func(j *batchv1.Job) { j.Annotations = map[string]string{"kueue.x-k8s.io/job-min-parallelism": "2"} })},
			reasonOwnSize, 0, "kueue.x-k8s.io/job-min-parallelism"},
		{"a Job that Kueue only queues", nil, []runtime.Object{jobWith(func(j *batchv1.Job) { j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "q"} })}, reasonHeldMembers, 4, ""},
		{"no Job", nil, nil, reasonOwnerMissing, 0, "Job train does not exist"},
		{"another Job of its name", nil, []runtime.Object{jobWith(func(j *batchv1.Job) { j.UID = "other" })}, reasonOwnerMissing, 0, ""},
		{"a StatefulSet", owned("apps/v1", "StatefulSet", "train"), []runtime.Object{set}, reasonHeldMembers, 0, "StatefulSet train"},
		{"a StatefulSet with an autoscaler", owned("apps/v1", "StatefulSet", "train"), []runtime.Object{set, autoscaler("ns", "StatefulSet", "train")}, reasonOwnSize, 0, "HorizontalPodAutoscaler hpa"},
		{"a StatefulSet, and an autoscaler of another one", owned("apps/v1", "StatefulSet", "train"), []runtime.Object{set, autoscaler("ns", "StatefulSet", "other")}, reasonHeldMembers, 0, ""},
		{"a StatefulSet, and an autoscaler of a Deployment", owned("apps/v1", "StatefulSet", "train"), []runtime.Object{set, autoscaler("ns", "Deployment", "train")}, reasonHeldMembers, 0, ""},
		{"a StatefulSet, and an autoscaler elsewhere", owned("apps/v1", "StatefulSet", "train"), []runtime.Object{set, autoscaler("other", "StatefulSet", "train")}, reasonHeldMembers, 0, ""},
		{"the StatefulSet of the workers of a LeaderWorkerSet", owned("apps/v1", "StatefulSet", "train"), []runtime.Object{statefulSet("v1", "Pod")}, reasonUnknownOwner, 0,
			"the members belong to StatefulSet train of Pod lead, and the controller does not know what that does when a member is evicted"},
		{"the StatefulSet of the leaders of a LeaderWorkerSet", owned("apps/v1", "StatefulSet", "train"),
			[]runtime.Object{statefulSet("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet")}, reasonUnknownOwner, 0, "of LeaderWorkerSet.leaderworkerset.x-k8s.io lead"},
		{"no StatefulSet", owned("apps/v1", "StatefulSet", "train"), nil, reasonOwnerMissing, 0, "StatefulSet train does not exist"},
		{"another StatefulSet of its name", owned("apps/v1", "StatefulSet", "train"), []runtime.Object{other}, reasonOwnerMissing, 0, ""},
		{"a Deployment", owned("apps/v1", "ReplicaSet", "train"), []runtime.Object{replicaSet("web")}, reasonHeldMembers, 0, "Deployment web"},
		{"a Deployment with an autoscaler", owned("apps/v1", "ReplicaSet", "train"), []runtime.Object{replicaSet("web"), autoscaler("ns", "Deployment", "web")}, reasonOwnSize, 0, "Deployment web"},
		{"a ReplicaSet", owned("apps/v1", "ReplicaSet", "train"), []runtime.Object{replicaSet("")}, reasonHeldMembers, 0, "ReplicaSet train"},
		{"a ReplicaSet with an autoscaler", owned("apps/v1", "ReplicaSet", "train"), []runtime.Object{replicaSet(""), autoscaler("ns", "ReplicaSet", "train")}, reasonOwnSize, 0, ""},
		{"no ReplicaSet", owned("apps/v1", "ReplicaSet", "train"), nil, reasonOwnerMissing, 0, "ReplicaSet train does not exist"},
		{"an owner that is not known", owned("kubeflow.org/v1", "PyTorchJob", "train"), nil, reasonUnknownOwner, 0, "PyTorchJob.kubeflow.org train"},
		{"a Job of another API group", owned("batch.volcano.sh/v1alpha1", "Job", "train"), []runtime.Object{jobOf("train", 4)}, reasonUnknownOwner, 0, "Job.batch.volcano.sh train"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			pods := members(t, "train", 2, 0, 0)
			if test.owner != nil {
				pods[0].OwnerReferences, pods[1].OwnerReferences = test.owner, test.owner
			}
			v := listersOf(t, test.objects...).resizable(gangOf(pods, nil))
			if v.reason != test.want || v.yes != (test.want == reasonHeldMembers) || v.most != test.most || !strings.Contains(v.message, test.says) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// One owner makes all members.
func TestOwners(t *testing.T) {
	bare := func(p *v1.Pod) { p.OwnerReferences = nil }
	other := func(p *v1.Pod) { p.OwnerReferences = owned("batch/v1", "Job", "other") }
	same := func(*v1.Pod) {}
	for name, test := range map[string]struct {
		first, last func(*v1.Pod)
		want, says  string
	}{
		"bare pods":              {bare, bare, reasonNoOwner, "bare pods"},
		"a bare pod comes first": {bare, same, reasonSeveralOwners, "pod train-0 belongs to no object, and pod train-1 to Job.batch train: "},
		"a bare pod comes last":  {same, bare, reasonSeveralOwners, "pod train-0 belongs to Job.batch train, and pod train-1 to no object: "},
		"two Jobs":               {same, other, reasonSeveralOwners, "pod train-0 belongs to Job.batch train, and pod train-1 to Job.batch other: "},
		"one Job":                {same, same, reasonHeldMembers, "Job train"},
		"an owner that is no controller": {
			func(p *v1.Pod) { p.OwnerReferences[0].Controller = nil }, func(p *v1.Pod) { p.OwnerReferences[0].Controller = nil }, reasonNoOwner, "bare pods",
		},
	} {
		pods := members(t, "train", 3, 0, 0)
		test.first(pods[0])
		test.last(pods[1])
		test.last(pods[2])
		v := listersOf(t, jobOf("train", 4), jobOf("other", 4)).resizable(gangOf(pods, nil))
		if v.reason != test.want || v.yes != (test.want == reasonHeldMembers) || !strings.Contains(v.message, test.says) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
