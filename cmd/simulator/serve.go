package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/internal/simulator/playback"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
)

// page is the GPU map of a run, as the flags say.
type page struct {
	address, policy, seed string
	anyone                bool
}

func (p *page) addFlags(c *cobra.Command) {
	c.Flags().StringVar(&p.address, "serve", "", "`address`, as 127.0.0.1:8080, where a browser sees the GPU map of a run, until Ctrl-C")
	c.Flags().BoolVar(&p.anyone, "serve-anyone", false, "let --serve have an address that other machines can reach; it asks nobody who they are")
	c.Flags().StringVar(&p.policy, "policy", "", "`name` of the one policy to play; without it all, of which --serve shows the first")
	c.Flags().StringVar(&p.seed, "seed", "", "`number` of the one seed to play; without it all, of which --serve shows the first")
}

// listen opens the address before the scenario is played, so that a bad one does not cost the time. It returns nil without --serve.
func (p *page) listen(ctx context.Context) (net.Listener, error) {
	if p.address == "" {
		if p.anyone {
			return nil, errors.New("flag --serve-anyone: it is about --serve, which is not given")
		}
		return nil, nil
	}
	l, err := gpumap.Listen(ctx, p.address, p.anyone)
	if errors.Is(err, gpumap.ErrNotLoopback) {
		return nil, fmt.Errorf("flag --serve: %w; --serve-anyone allows others", err)
	}
	if err != nil {
		return nil, fmt.Errorf("flag --serve: %w", err)
	}
	return l, nil
}

// show serves the run until the context ends, or the user ends it.
func (p *page) show(c *cobra.Command, l net.Listener, name string, run *scenario.Run) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fmt.Fprintf(c.ErrOrStderr(), "The GPU map of policy %s with seed %d is at http://%s/ until you press Ctrl-C.\n", run.Policy, run.Seed, l.Addr())
	return gpumap.Serve(ctx, l, gpumap.Explaining(playback.Of(name, run), wording.Brief))
}
