// Package inference plays loads of inference requests, request by request, against fleets that a policy sizes: the decisions of
// pkg/traffic, and rivals.
//
// A request arrives at a random time of its second, goes to a variant by the weights and to a random replica of it, waits for one of the
// replica's channels in the order of arrival, and takes a random time with the variant's mean and variation. A replica that
// starts serves after the load time. One that stops ends what it has begun.
package inference
