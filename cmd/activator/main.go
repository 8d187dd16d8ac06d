// Command activator keeps the addresses of parked notebooks: it holds a request for one, wakes it, and passes the request on.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer end()
	c := command()
	if err := c.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "activator:", err)
		os.Exit(1) //nolint:gocritic // the process ends, and the signals with it
	}
}
