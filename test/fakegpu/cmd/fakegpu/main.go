// Command fakegpu makes and changes state files of the fake driver by hand.
//
//	fakegpu build DIR
//	fakegpu init --node n1 --profile A100 --count 4 > state.json
//	fakegpu set --state state.json --gpu 0 --lost
//	fakegpu set --state state.json --gpu 1 --xid 79 --utilization 80 --mps-fault
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tandem-gpu/tandem/test/fakegpu"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fakegpu:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "build":
			if len(args) == 2 {
				return fakegpu.Build(ctx, args[1])
			}
		case "init":
			return initState(args[1:], out)
		case "set":
			return setState(args[1:])
		}
	}
	return fmt.Errorf("want build DIR, init or set; init -h and set -h list the flags")
}

func initState(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("init", flag.ContinueOnError)
	node := flags.String("node", "node", "name of the node; the UUIDs depend on it")
	profile := flags.String("profile", "A100", "GPU model: "+strings.Join(fakegpu.Names(), ", "))
	count := flags.Int("count", 4, "number of GPUs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	state, err := fakegpu.Node(*node, *profile, *count)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(state)
}

func setState(args []string) error {
	flags := flag.NewFlagSet("set", flag.ContinueOnError)
	path := flags.String("state", os.Getenv(fakegpu.StateVariable), "state file")
	gpu := flags.Int("gpu", 0, "index of the GPU")
	lost := flags.Bool("lost", false, "it has fallen off the bus; --lost=false brings it back")
	xid := flags.Uint64("xid", 0, "append an XID error")
	utilization := flags.Uint("utilization", 0, "busy SMs in percent")
	fault := flags.Bool("mps-fault", false, "a fatal fault breaks its MPS servers")
	wedge := flags.Bool("mps-wedge", false, "new clients of its MPS servers block for ever")
	hang := flags.Bool("mps-hang", false, "its MPS control daemon does not answer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var bad error
	err := fakegpu.Update(*path, func(s *fakegpu.State) {
		if *gpu < 0 || *gpu >= len(s.Devices) {
			bad = fmt.Errorf("set GPU %d of %d", *gpu, len(s.Devices))
			return
		}
		d := &s.Devices[*gpu]
		// Only what was named changes.
		flags.Visit(func(f *flag.Flag) {
			switch f.Name {
			case "lost":
				d.Lost = *lost
			case "xid":
				s.Events = append(s.Events, fakegpu.Event{Device: *gpu, XID: *xid})
			case "utilization":
				d.GPUUtilization = uint32(min(*utilization, 100))
			case "mps-fault":
				d.MPS.Fault = *fault
			case "mps-wedge":
				d.MPS.Wedge = *wedge
			case "mps-hang":
				d.MPS.Hang = *hang
			}
		})
	})
	if bad != nil {
		return bad
	}
	return err
}
