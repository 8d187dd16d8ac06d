package kube

import (
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
)

// IgnoresDisruption reports whether a Job ignores pods that failed because they were evicted.
func IgnoresDisruption(job *batchv1.Job) bool {
	if job.Spec.PodFailurePolicy == nil {
		return false
	}
	for i := range job.Spec.PodFailurePolicy.Rules {
		rule := &job.Spec.PodFailurePolicy.Rules[i]
		for _, c := range rule.OnPodConditions {
			if c.Type == v1.DisruptionTarget && c.Status != v1.ConditionFalse {
				return rule.Action == batchv1.PodFailurePolicyActionIgnore
			}
		}
		if rule.OnExitCodes != nil && rule.Action != batchv1.PodFailurePolicyActionIgnore {
			return false // an evicted program ends with some code, and this rule comes first
		}
	}
	return false
}
