// Package inference takes the place of a model that GPUs serve, in tests that measure requests.
//
// A Server is one replica. It answers each request after a time that it draws, serves several at once and has the others wait, may join
// waiting requests to a batch, and exports what Triton exports. Replay sends requests at the rates of a list and notes what came of each.
// The package knows nothing of Kubernetes, gateways and fleets.
package inference
