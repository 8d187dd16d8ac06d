package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
)

// shmCommand mounts the memory that tenants share with their MPS servers. The command needs the right to mount on the
// host, which neither the agent nor the MPS host has: it runs before the MPS host, and ends.
func shmCommand() *cobra.Command {
	var dir, size string
	c := &cobra.Command{
		Use: "mount-shm", Hidden: true, Args: cobra.NoArgs, SilenceUsage: true,
		Short: "Mounts a tmpfs with a size for what MPS and the tenants of this node share in memory, or gives it another size",
		RunE: func(c *cobra.Command, _ []string) error {
			err := mps.MountSharedMemory(dir, size)
			if errors.Is(err, mps.ErrInUse) {
				_, err = fmt.Fprintln(c.ErrOrStderr(), err) // the tmpfs is there, with the size that it had
			}
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "/dev/shm/tandem", "folder to mount at; on the host it is the one of the agent's --mps-shm-dir")
	c.Flags().StringVar(&size, "size", "10%", "size of the tmpfs: a part of the node's memory, at most 50%, or an amount such as 8Gi")
	return c
}
