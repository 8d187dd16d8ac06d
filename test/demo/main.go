package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// limit is how long the demo may take after the builds. A busy machine needs a minute; only a hang reaches it.
const limit = 15 * time.Minute

func main() { os.Exit(status()) }

// status runs the demo and returns the exit status.
func status() int {
	keep := flag.Bool("keep", false, "leave the cluster up until Ctrl-C")
	kubernetes := flag.String("kubernetes", "", "version of the API server, for example 1.35.4; empty for that of tools/controlplane")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // the API server's advice would disturb the output
	out := newTerminal(os.Stdout)
	err := run(ctx, out, *kubernetes, *keep)
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		out.say("interrupted; everything is cleaned up")
		return 130
	default:
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		return 1
	}
}

func run(ctx context.Context, out *terminal, kubernetes string, keep bool) error {
	built, err := build(ctx, out, kubernetes)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := startCluster(limited, out, built)
	if err != nil {
		return err
	}
	defer c.stop()
	r, err := play(limited, out, c)
	if err != nil {
		return errors.Join(err, c.logs())
	}
	out.print(r.render(out.width, out.colours))
	if problems := r.check(); len(problems) > 0 {
		return errors.Join(append([]error{errors.New("what happened is not what should have happened")}, append(problems, c.logs())...)...)
	}
	out.say("checked: %s", r.summary())
	out.say("         %s", r.more())
	if err := c.tell(limited, out); err != nil {
		return errors.Join(err, c.logs())
	}
	if keep {
		out.print(c.instructions())
		<-ctx.Done()
		out.say("stopping")
	}
	return nil
}

// play submits the workloads, waits until all are placed or refused, and reports the result.
func play(ctx context.Context, out *terminal, c *cluster) (*report, error) {
	if err := c.submitAll(ctx, out, workloads()); err != nil {
		return nil, err
	}
	refused, err := c.submitRefused(ctx, out, refusals())
	if err != nil {
		return nil, err
	}
	r, err := c.observe(ctx)
	if err != nil {
		return nil, err
	}
	r.refused = refused
	return r, nil
}
