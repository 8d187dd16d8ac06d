package snapshots

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/guarded"
)

// Options say what Serve serves, and how.
type Options struct {
	Sources
	// Connection is the scheduler's to the API server.
	Connection *rest.Config
	Client     kubernetes.Interface
	// Port is that of the server.
	Port int
	// Flags are the scheduler's: those for the certificate, the bind address, authentication and authorisation count here too.
	Flags *pflag.FlagSet
	// Lease says who schedules, nil without leader election.
	Lease *Lease
	// Map says that the GPU map is served too, to those who may get snapshots.
	Map bool
}

// Serve serves snapshots until ctx ends. It returns once the port is open.
func Serve(ctx context.Context, o Options) error {
	if o.Fleets == nil {
		client, err := dynamic.NewForConfig(o.Connection)
		if err != nil {
			return fmt.Errorf("serve snapshots: %w", err)
		}
		if o.Fleets, err = watchFleets(ctx, client); err != nil {
			return fmt.Errorf("serve snapshots: %w", err)
		}
	}
	var turns *leader
	if o.Lease != nil {
		var err error
		if turns, err = newLeader(o.Client.CoordinationV1(), *o.Lease); err != nil {
			return fmt.Errorf("serve snapshots: %w", err)
		}
	}
	c := &store{build: o.build, now: time.Now, metrics: newMetrics()}
	c.metrics.register(ctx, c)
	how, err := guarded.New(o.Flags, o.Port)
	if err != nil {
		return fmt.Errorf("serve snapshots: %w", err)
	}
	h := &handler{store: c, asks: how.Authorizer(), leads: turns.leads}
	var m *gpuMap
	if o.Map {
		m = newMap(h)
		go m.follow(ctx)
	}
	if _, err := how.Serve(ctx, paths(h, m)); err != nil {
		return fmt.Errorf("serve snapshots on port %d: %w", o.Port, err)
	}
	klog.FromContext(ctx).Info("Serving snapshots", "port", o.Port, "path", Path, "map", o.Map)
	return nil
}

// paths serves the snapshot, and the map where there is one.
func paths(h *handler, m *gpuMap) http.Handler {
	all := mux.NewPathRecorderMux("tandem-scheduler")
	all.Handle(Path, h)
	if m != nil {
		all.HandlePrefix(MapPath, m)
	}
	return all
}
