// Package guarded serves paths by HTTPS to those who may get them, by the authentication and authorisation of the API server.
package guarded

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapifilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes/scheme"
)

// shutdown is how long requests under way may take when the program ends.
const shutdown = 5 * time.Second

// Server is how a server knows its callers and what they may do.
type Server struct {
	serving        *server.SecureServingInfo
	authentication server.AuthenticationInfo
	authorization  server.AuthorizationInfo
}

// New returns a server for a port with the guards that kube-scheduler has for its own port, by the same flags and defaults
// (k8s.io/kubernetes/cmd/kube-scheduler/app/options). The flags that are given count.
func New(given *pflag.FlagSet, port int) (*Server, error) {
	flags := pflag.NewFlagSet("guarded", pflag.ContinueOnError)
	serving, authentication, authorization := add(flags)
	if err := copyFlags(given, flags); err != nil {
		return nil, err
	}
	serving.BindPort = port
	if err := serving.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	g := &Server{}
	if err := serving.ApplyTo(&g.serving); err != nil {
		return nil, err
	}
	if err := authentication.ApplyTo(&g.authentication, g.serving, nil); err != nil {
		return nil, err
	}
	return g, authorization.ApplyTo(&g.authorization)
}

// AddFlags adds the flags that New reads, for programs that do not have them from elsewhere. New sets the port itself.
func AddFlags(flags *pflag.FlagSet) {
	own := pflag.NewFlagSet("guarded", pflag.ContinueOnError)
	add(own)
	own.VisitAll(func(f *pflag.Flag) {
		if f.Name != "secure-port" {
			flags.AddFlag(f)
		}
	})
}

func add(flags *pflag.FlagSet) (*options.SecureServingOptions, *options.DelegatingAuthenticationOptions, *options.DelegatingAuthorizationOptions) {
	serving, authentication, authorization := options.NewSecureServingOptions(), options.NewDelegatingAuthenticationOptions(), options.NewDelegatingAuthorizationOptions()
	authentication.TolerateInClusterLookupFailure, authentication.RemoteKubeConfigFileOptional = true, true
	authorization.RemoteKubeConfigFileOptional = true
	serving.ServerCert.CertDirectory, serving.ServerCert.PairName = "", "kube-scheduler"
	serving.AddFlags(flags)
	authentication.AddFlags(flags)
	authorization.AddFlags(flags)
	return serving, authentication, authorization
}

// Authorizer says what a caller may do.
type Authorizer interface {
	Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error)
}

// Authorizer asks the API server by SubjectAccessReviews, and keeps the answers for ten seconds.
func (g *Server) Authorizer() Authorizer { return g.authorization.Authorizer }

// Serve opens the port, and serves the paths until ctx ends. The channel is closed when the last request is answered.
func (g *Server) Serve(ctx context.Context, paths http.Handler) (<-chan struct{}, error) {
	stopped, _, err := g.serving.Serve(g.chain(paths), shutdown, ctx.Done())
	return stopped, err
}

// MayList reports whether a caller may list the pods of a namespace, "" for those of all.
func MayList(ctx context.Context, who user.Info, asks Authorizer, namespace string) (bool, error) {
	decision, _, err := asks.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "list", Namespace: namespace, APIVersion: "v1", Resource: "pods", ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the caller may list pods: %w", err)
	}
	return false, nil
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
func (g *Server) chain(h http.Handler) http.Handler {
	resolver := &request.RequestInfoFactory{}
	h = genericapifilters.WithAuthorization(h, g.authorization.Authorizer, scheme.Codecs)
	h = genericapifilters.WithAuthentication(h, g.authentication.Authenticator, genericapifilters.Unauthorized(scheme.Codecs), nil, nil)
	h = genericapifilters.WithRequestInfo(h, resolver)
	h = genericapifilters.WithCacheControl(h)
	h = genericfilters.WithHTTPLogging(h)
	return genericfilters.WithPanicRecovery(h, resolver)
}
