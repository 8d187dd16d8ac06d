package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
)

// mpsHostCommand keeps the MPS daemons in a pod of their own, where an upgrade of the agent does not end them.
func mpsHostCommand() *cobra.Command {
	var host mps.Host
	var socket, shm string
	logging := logsapi.NewLoggingConfiguration()
	c := &cobra.Command{
		Use: "mps-host", Hidden: true, Args: cobra.NoArgs, SilenceUsage: true,
		Short: "Starts MPS control daemons for the agent of this node, and ends with them",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := logsapi.ValidateAndApply(logging, nil); err != nil {
				return err
			}
			if shm != "" {
				if err := os.Chmod(shm, os.ModeSticky|0o777); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM, os.Interrupt)
			defer stop()
			return host.Run(ctx, socket)
		},
	}
	c.Flags().StringVar(&socket, "socket", "/run/tandem/mps/host.sock", "Unix socket to listen on; mps.launcher of the agent's configuration names it")
	c.Flags().StringVar(&host.Options.Dir, "mps-dir", "/run/tandem/mps", "folder for the pipes and logs of MPS, as the agent's")
	c.Flags().StringVar(&shm, "shm-dir", "", "folder that the daemons' clients see as /dev/shm; it is opened to all users, as that is")
	logsapi.AddFlags(logging, c.Flags())
	return c
}
