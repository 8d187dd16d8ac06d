// Command shadow runs beside another scheduler, binds nothing, and reports what Tandem would have done with its pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "shadow:", err)
		os.Exit(1) //nolint:gocritic // the program ends, and with it the context
	}
}
