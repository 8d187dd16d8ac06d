package kube

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// SelectorLength counts the labels, expressions and values of a selector: reading it, and comparing a pod with it, takes as many steps.
func SelectorLength(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	sum := len(s.MatchLabels)
	for i := range s.MatchExpressions {
		sum += 1 + len(s.MatchExpressions[i].Values)
	}
	return sum
}
