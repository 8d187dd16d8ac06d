package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/internal/scheduler/snapshots"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

// snapshotPort is the usual port of snapshots, beside 10259, that of kube-scheduler.
const snapshotPort = 10261

// serving serves the scheduler's snapshots on a port of its own: nothing can be added to the server of kube-scheduler.
type serving struct {
	port    int
	gpuMap  bool
	command *cobra.Command
	once    sync.Once
}

// mapFlag turns the GPU map on or off.
const mapFlag = "snapshot-map"

// wrap adds the flags to a scheduler's command. The command's own help shows none but its own flags.
func (s *serving) wrap(c *cobra.Command) {
	s.command = c
	c.Flags().IntVar(&s.port, "snapshot-secure-port", snapshotPort, "")
	c.Flags().BoolVar(&s.gpuMap, mapFlag, false, "")
	help := c.HelpFunc()
	c.SetHelpFunc(func(c *cobra.Command, args []string) {
		help(c, args)
		writeSnapshotHelp(c.OutOrStdout())
	})
}

func writeSnapshotHelp(w io.Writer) {
	fmt.Fprintf(w, "\nSnapshot flags:\n\n      --snapshot-secure-port int\n"+
		"                The port on which to serve GET %s by HTTPS, with the authentication, authorization and certificate of --secure-port.\n"+
		"                If 0, the snapshot is not served. (default %d, and 0 with --secure-port=0)\n"+
		"      --snapshot-map\n"+
		"                Serve the GPU map, a web page, at %s on that port, to those who may get %s.\n"+
		"                (default true where --bind-address is a loopback address, otherwise false)\n",
		snapshots.Path, snapshotPort, snapshots.MapPath, snapshots.Path)
}

// with returns a factory that has the snapshots served from when it has made its plugin on.
func (s *serving) with(shares *gpushare.Factory, room *machine.Machine) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := shares.New(ctx, args, handle)
		if err != nil || !s.isWanted() {
			return plugin, err
		}
		s.once.Do(func() { err = s.start(ctx, shares.Plugin(), room, handle) })
		return plugin, err
	}
}

// isWanted reports whether the flags leave the port open.
func (s *serving) isWanted() bool {
	own := s.command.Flags().Lookup("secure-port")
	return s.port != 0 && (s.command.Flags().Changed("snapshot-secure-port") || own == nil || own.Value.String() != "0")
}

// wantsMap reports whether the GPU map is served: where other machines reach the port, only when the flag asks for it.
func (s *serving) wantsMap() bool {
	if s.command.Flags().Changed(mapFlag) {
		return s.gpuMap
	}
	bound := s.command.Flags().Lookup("bind-address")
	return bound != nil && net.ParseIP(bound.Value.String()).IsLoopback()
}

func (s *serving) start(ctx context.Context, shares *gpushare.Plugin, room *machine.Machine, handle fwk.Handle) error {
	lease, err := leaseOf(s.command)
	if err != nil {
		return err
	}
	return snapshots.Serve(ctx, snapshots.Options{
		Sources:    snapshots.Sources{Shares: shares, Groups: room},
		Connection: handle.KubeConfig(), Client: handle.ClientSet(), Port: s.port, Flags: s.command.Flags(), Lease: lease,
		Map: s.wantsMap(),
	})
}

// leaseOf returns the lease by which replicas take turns, as flags and configuration say it; nil where this scheduler takes none.
func leaseOf(c *cobra.Command) (*snapshots.Lease, error) {
	value := func(flag string) string { return c.Flags().Lookup(flag).Value.String() }
	elect, lease := value("leader-elect") == "true", &snapshots.Lease{Namespace: value("leader-elect-resource-namespace"), Name: value("leader-elect-resource-name")}
	if file := value("config"); file != "" { // whose values count where a flag is not given
		loaded, err := options.LoadConfigFromFile(klog.Background(), file)
		if err != nil {
			return nil, err
		}
		given := c.Flags().Changed
		if !given("leader-elect") {
			elect = loaded.LeaderElection.LeaderElect
		}
		if !given("leader-elect-resource-namespace") {
			lease.Namespace = loaded.LeaderElection.ResourceNamespace
		}
		if !given("leader-elect-resource-name") {
			lease.Name = loaded.LeaderElection.ResourceName
		}
	}
	if !elect {
		return nil, nil
	}
	return lease, nil
}
