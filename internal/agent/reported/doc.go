// Package reported is the rate that a pod reports of itself: how much it gets done, in a unit of its own.
//
// A pod says it in an annotation, or shows it as a metric over HTTP. The package reads and keeps the last report, and
// checks nothing but its form. The package does not trust pods: the address is the pod's own, answers have limits of
// time, size and number, and the package drops a value that no rate can have. The package cannot check that a rate is
// true.
package reported
