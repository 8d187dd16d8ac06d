package snapshots

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
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
	how, err := delegated(o.Flags, o.Port)
	if err != nil {
		return fmt.Errorf("serve snapshots: %w", err)
	}
	h := &handler{store: c, asks: how.authorization.Authorizer, leads: turns.leads}
	var m *gpuMap
	if o.Map {
		m = newMap(h)
		go m.follow(ctx)
	}
	if _, _, err := how.serving.Serve(how.chain(paths(h, m)), shutdown, ctx.Done()); err != nil {
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

// shutdown is how long requests under way may take when the scheduler ends.
const shutdown = 5 * time.Second

// guards are how a server knows its callers and what they may do.
type guards struct {
	serving        *server.SecureServingInfo
	authentication server.AuthenticationInfo
	authorization  server.AuthorizationInfo
}

// delegated returns the guards that kube-scheduler has for its own port, by the same flags and defaults
// (k8s.io/kubernetes/cmd/kube-scheduler/app/options).
func delegated(given *pflag.FlagSet, port int) (*guards, error) {
	serving, authentication, authorization := options.NewSecureServingOptions(), options.NewDelegatingAuthenticationOptions(), options.NewDelegatingAuthorizationOptions()
	authentication.TolerateInClusterLookupFailure, authentication.RemoteKubeConfigFileOptional = true, true
	authorization.RemoteKubeConfigFileOptional = true
	serving.ServerCert.CertDirectory, serving.ServerCert.PairName = "", "kube-scheduler"
	flags := pflag.NewFlagSet("snapshot", pflag.ContinueOnError)
	serving.AddFlags(flags)
	authentication.AddFlags(flags)
	authorization.AddFlags(flags)
	if err := copyFlags(given, flags); err != nil {
		return nil, err
	}
	serving.BindPort = port
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	g := &guards{}
	if err := serving.ApplyTo(&g.serving); err != nil {
		return nil, err
	}
	if err := authentication.ApplyTo(&g.authentication, g.serving, nil); err != nil {
		return nil, err
	}
	return g, authorization.ApplyTo(&g.authorization)
}

// copyFlags sets the flags that are given, where the other set has one of the same name.
func copyFlags(from, to *pflag.FlagSet) error {
	var failed error
	to.VisitAll(func(f *pflag.Flag) {
		g := from.Lookup(f.Name)
		if g == nil || !g.Changed {
			return
		}
		list, isList := g.Value.(pflag.SliceValue)
		other, isOtherList := f.Value.(pflag.SliceValue)
		var err error
		if isList && isOtherList {
			err = other.Replace(list.GetSlice())
		} else {
			err = f.Value.Set(strings.Trim(g.Value.String(), "[]"))
		}
		if err != nil {
			failed = fmt.Errorf("--%s: %w", f.Name, err)
		}
	})
	return failed
}

// chain returns a handler behind the filters that kube-scheduler has on its own port.
func (g *guards) chain(h http.Handler) http.Handler {
	resolver := &request.RequestInfoFactory{}
	h = genericapifilters.WithAuthorization(h, g.authorization.Authorizer, scheme.Codecs)
	h = genericapifilters.WithAuthentication(h, g.authentication.Authenticator, genericapifilters.Unauthorized(scheme.Codecs), nil, nil)
	h = genericapifilters.WithRequestInfo(h, resolver)
	h = genericapifilters.WithCacheControl(h)
	h = genericfilters.WithHTTPLogging(h)
	return genericfilters.WithPanicRecovery(h, resolver)
}
