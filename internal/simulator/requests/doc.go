// Package requests plays the requests of an inference fleet one by one, and sizes the fleet as the controller does.
//
// Requests arrive at random times at a rate that changes by the minute. Each goes to a random replica that serves, and waits there behind
// the others. Package traffic decides how many replicas there should be, from what was seen of the last minute, or the number stays.
// Package sim decides where replicas have their devices. The package does not model neighbours: a replica is as fast as it is declared.
package requests
