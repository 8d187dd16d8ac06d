// Package reported is the rate that a pod reports of itself: how much it gets done, in a unit of its own.
//
// A pod says it in an annotation, or shows it as a metric that is read over HTTP. The package reads and keeps what was
// said last; it judges nothing but the form. Pods are not trusted: the address is the pod's own, answers are bounded in
// time, size and number, and a value that no rate can have is dropped. That a rate is true nobody can say here.
package reported
