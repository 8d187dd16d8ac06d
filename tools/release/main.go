// Command release builds the files of a release, and checks, compares and pushes those that were built.
//
//	go run . build -version v0.1.0 -output ../../dist
//	go run . check -version v0.1.0 ../../dist
//	go run . compare ../../dist ../../dist-again
//	go run . push -version v0.1.0 -registry registry.example.com/team ../../dist
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/tandem-gpu/tandem/tools/release/dist"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// options are the flags of all commands.
type options struct {
	root, version, registry, platforms, output string
	dirty                                      bool
	folders                                    []string
}

func run(ctx context.Context, args []string) error {
	commands := map[string]struct {
		folders int
		run     func(context.Context, options) error
	}{"build": {0, build}, "check": {1, check}, "compare": {2, compare}, "push": {1, push}}
	if len(args) == 0 {
		return errors.New("name a command: build, check, compare or push")
	}
	c, ok := commands[args[0]]
	if !ok {
		return fmt.Errorf("%q is no command: they are build, check, compare and push", args[0])
	}
	var o options
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&o.root, "root", "../..", "the repository")
	flags.StringVar(&o.version, "version", "", "the version of the release, such as v0.1.0")
	flags.StringVar(&o.registry, "registry", "", "where the images will be pulled from, such as registry.example.com/team")
	flags.StringVar(&o.platforms, "platforms", "", "what to build for, such as linux/amd64,linux/arm64; empty means all platforms of a release")
	flags.StringVar(&o.output, "output", "../../dist", "the folder to write, which is replaced")
	flags.BoolVar(&o.dirty, "dirty", false, "build from files that are not committed")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if o.folders = flags.Args(); len(o.folders) != c.folders {
		return fmt.Errorf("%s takes %d folders, not %d", args[0], c.folders, len(o.folders))
	}
	return c.run(ctx, o)
}

func build(ctx context.Context, o options) error {
	platforms, err := dist.ParsePlatforms(o.platforms)
	if err != nil {
		return err
	}
	r := dist.Release{Root: o.root, Version: o.version, Registry: o.registry, Platforms: platforms}
	if err := r.Describe(ctx, o.dirty); err != nil {
		return err
	}
	return r.Build(ctx, o.output, func(what string) { fmt.Fprintln(os.Stderr, "release:", what) })
}

func check(_ context.Context, o options) error {
	platforms, err := dist.ParsePlatforms(o.platforms)
	if err != nil {
		return err
	}
	if err := dist.Check(o.folders[0], o.version, platforms); err != nil {
		return err
	}
	fmt.Printf("%s has the %d files of %s, and all is as it should be\n", o.folders[0], len(dist.Contents(o.version, platforms)), o.version)
	return nil
}

func compare(_ context.Context, o options) error {
	if err := dist.Compare(o.folders[0], o.folders[1]); err != nil {
		return err
	}
	fmt.Printf("%s and %s have the same files\n", o.folders[0], o.folders[1])
	return nil
}

func push(ctx context.Context, o options) error {
	if o.registry == "" {
		return errors.New("push needs -registry, such as registry.example.com/team")
	}
	pushed, err := dist.Push(ctx, o.folders[0], o.version, o.registry)
	for _, image := range pushed {
		fmt.Println(image)
	}
	return err
}
