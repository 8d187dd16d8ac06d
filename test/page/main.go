// Command page opens the GPU map in a real browser, over made-up clusters of 8, 100 and 1,000 GPUs, and fails where the page does
// not do what it promises: three widths, keys, filters, no error in the console, the first picture and the frames in time. make
// test-page runs it.
//
//	page --check SCRIPT --images DIRECTORY     run the browser's checks by node, and write the screenshots
//	page --serve 127.0.0.1:8080                serve the clusters at /8/, /100/ and /1000/, for people
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
)

// sizes of the clusters, in GPUs.
var sizes = []int{8, 100, 1000}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

func run() error {
	address := flag.String("serve", "127.0.0.1:0", "`address` of the pages")
	script := flag.String("check", "", "`path` of the browser's checks; without it the pages are served until Ctrl-C")
	images := flag.String("images", "", "`directory` for the screenshots")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	l, err := gpumap.Listen(ctx, *address, false)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "page: serving clusters of %v GPUs at http://%s/\n", sizes, l.Addr())
	if *script == "" {
		return gpumap.Serve(ctx, l, pages())
	}
	return check(ctx, l, *script, *images)
}

// check serves the pages while the script runs.
func check(ctx context.Context, l net.Listener, script, images string) error {
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- gpumap.Serve(ctx, l, pages()) }()
	c := exec.CommandContext(ctx, "node", script, "http://"+l.Addr().String(), images)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	err := c.Run()
	stop()
	return errors.Join(err, <-served)
}

// pages serves each cluster under a prefix, as a proxy would.
func pages() http.Handler {
	m := http.NewServeMux()
	for _, gpus := range sizes {
		prefix := fmt.Sprintf("/%d", gpus)
		m.Handle(prefix+"/", http.StripPrefix(prefix, gpumap.Explaining(made{gpus}, wording.Brief)))
	}
	return m
}
