// Package fleets keeps inference fleets at the right sizes and divides their requests.
//
// The InferenceFleet or a WorkloadProfile declares how a replica serves. In each pass the package reads what each fleet has: the numbers of
// its scale targets, the ready endpoints of its Services, the weights of its HTTPRoute, what Prometheus measured or its pods reported, and
// the priorities of its pods and of elastic jobs. A condition says whether these priorities are in order. Package traffic decides. Then the
// package writes what differs: a fleet grows at its scale targets first, and gets weights when the new replicas are ready; a variant that
// shrinks loses weight first, and replicas in a later pass that reads the lower weight from the route. All writes test the old values, so
// that no write of others is lost.
//
// The package does not start pods, route requests, or ask for more than the scale targets say. A fleet with a problem keeps its
// sizes and weights, and its conditions say why. The package keeps in memory what it learned; a new process knows only the
// slowdowns, from the status of the fleet, and it takes no replica away until it has seen the demand for as long as the patience.
package fleets
