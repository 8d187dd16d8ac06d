package integration

import "testing"

// startPreemptionCluster returns a cluster of nodes with so many GPUs each, and with the priority classes.
func startPreemptionCluster(t *testing.T, mode gangMode, binary string, gpus ...int) *gangCluster {
	t.Helper()
	c := startCluster(t, mode, binary, gpus...)
	c.createClasses(t)
	return c
}
