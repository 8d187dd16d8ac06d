// Package telemetry measures the use of the devices, divides it among the containers, and reads the rates that pods report
// of themselves.
//
// It decides which container a measured use is counted to, how uses are smoothed, and when a use has moved far enough to
// be published. It gives the result to the inventory and to the metrics; package gpunode writes it to the API server.
package telemetry
