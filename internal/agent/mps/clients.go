package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// patience is how many commands in a row may go without an answer before the daemon counts as hanging. A daemon that
// hangs on one client must not keep the agent from ending the others; each costs a timeout.
const patience = 2

// endClients gives the command for each client of the daemon that is one of pids, and returns those for which MPS
// reported success.
func (c control) endClients(ctx context.Context, d Daemon, pids []int) ([]int, error) {
	var ended []int
	var failures []error
	silent := 0
	for _, s := range d.Servers {
		for _, client := range s.Clients {
			if !slices.Contains(pids, client) {
				continue
			}
			err := c.endClient(ctx, s.PID, client)
			switch {
			case err == nil:
				ended, silent = append(ended, client), 0
				continue
			case errors.Is(err, ErrNoAnswer):
				silent++
			}
			failures = append(failures, fmt.Errorf("client %d: %w", client, err))
			if errors.Is(err, ErrNotRunning) || ctx.Err() != nil || silent == patience {
				return ended, errors.Join(failures...)
			}
		}
	}
	return ended, errors.Join(failures...)
}

// endClient ends the GPU work of one client. NVIDIA does not document the texts of the daemon. So after any answer but
// silence and the code of success, endClient checks the list: a client that has gone by itself has ended too.
func (c control) endClient(ctx context.Context, server, client int) error {
	said, err := c.run(ctx, fmt.Sprintf("terminate_client %d %d", server, client))
	if err != nil || obeyed(said) {
		return err
	}
	list, err := c.run(ctx, fmt.Sprint(listClients, server))
	if err != nil {
		return err
	}
	if slices.Contains(numbers(list), client) {
		return fmt.Errorf("terminate_client was refused: %q", said)
	}
	return nil
}

// obeyed knows the forms in which a daemon says yes.
func obeyed(said string) bool {
	return said == "" || said == "0" || strings.Contains(said, "CUDA_SUCCESS")
}
