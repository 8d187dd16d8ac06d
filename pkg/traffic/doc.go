// Package traffic decides how many replicas of each variant an inference fleet needs now, and which part of its requests each
// variant gets.
//
// A fleet serves one model and promises a latency. A variant is a pool of equal replicas: one GPU model, one share size. Variants
// differ in how fast a replica is and in what it costs. [Replica] says how one replica serves; queueing theory says from that how
// long requests take at a rate of arrivals, and how many requests a second it serves within the promise (its capacity). [Cheapest]
// chooses the cheapest replicas with enough capacity, [Split] divides the requests, [Forecast] says how many will come, and [Decide]
// puts these together and bounds what changes at a time.
//
// Requests may be of several classes, which load the replicas of a variant unlike ([LoadsOf]). Then [CheapestFor] and [Assign] take the places of
// Cheapest and Split.
//
// The package starts and stops nothing, and routes no request. It does not place replicas on devices.
package traffic
