package e2e

import (
	"context"
	"os/exec"
)

// startController starts the controller of deploy/, with shorter times: it decides each second, and a job may change its size as
// often as a test makes it.
func (c *Cluster) startController(ctx context.Context) error {
	kubeconfig, err := c.plane.ServiceAccount(ctx, systemNamespace, "tandem-controller")
	if err != nil {
		return err
	}
	c.controller, err = c.plane.Processes().Start("tandem-controller", exec.Command(c.layout.bin("tandem-controller"),
		"--kubeconfig="+kubeconfig, "--leader-elect-namespace="+systemNamespace, "--metrics-bind-address=0", "--health-probe-bind-address=0",
		"--elastic-interval=1s", "--elastic-notice=1s", "--elastic-max-moves=100"))
	return err
}
