// Package telemetry measures the use of the devices, divides it among the containers, and reads the rates that pods report
// of themselves.
//
// The package decides to which container a measured use counts, how to smooth uses, and when a use has moved far enough
// to be published. The inventory and the metrics take the result; package gpunode writes it to the API server.
package telemetry
