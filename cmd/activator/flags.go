package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/activator"
	"github.com/tandem-gpu/tandem/internal/version"
)

// settings are the values of the flags.
type settings struct {
	kubeconfig      string
	address, probes string
	qps             float32
	burst           int
	activator       activator.Options
}

// command returns the command with its flags.
func command() *cobra.Command {
	s := &settings{}
	c := &cobra.Command{
		Use:   "tandem-activator",
		Short: "Tandem's activator keeps the addresses of notebooks, and wakes parked ones",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		Version: version.Get().String(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.check(); err != nil {
				return err
			}
			klog.InfoS("Starting Tandem's activator", "version", version.Get().String())
			return s.run(c.Context())
		},
	}
	f := c.Flags()
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "file with the address of the API server and how to log in; empty in a pod of the cluster")
	f.StringVar(&s.address, "bind-address", ":8000", "address of the proxy")
	f.StringVar(&s.probes, "probe-bind-address", ":8081", "address of /healthz, /readyz and /metrics")
	f.Float32Var(&s.qps, "kube-api-qps", 20, "the most requests to the API server in a second")
	f.IntVar(&s.burst, "kube-api-burst", 40, "the most requests to the API server at once")
	f.DurationVar(&s.activator.HoldFor, "hold-for", 5*time.Minute, "how long a request waits for its notebook, 1s to 1h")
	f.IntVar(&s.activator.MostHeld, "most-held", 1000, "how many requests wait at a time, an eighth of them for the notebooks of one namespace, 1 to 100000")
	f.IntVar(&s.activator.MostConnections, "most-connections", 2000, "how many connections clients have at a time, an eighth of them with requests for the notebooks of one "+
		"namespace, 1 to 100000; each takes some 100 KiB")
	f.StringSliceVar(&s.activator.StripHeaders, "strip-headers", nil, "`names` of headers that are not passed on to notebooks, such as X-Forwarded-User")
	f.StringSliceVar(&s.activator.StripCookies, "strip-cookies", nil, "`names` of cookies that are not passed on to notebooks, nor set by them: those of the login; * is any part of a name")
	return c
}

// all reports whether each text is legal.
func all(texts []string, legal func(string) bool) bool {
	return !slices.ContainsFunc(texts, func(text string) bool { return !legal(text) })
}

// check returns an error that names the flag and its legal values.
func (s *settings) check() error {
	a := &s.activator
	for _, v := range []struct {
		flag  string
		legal bool
		value any
		want  string
	}{
		{"hold-for", a.HoldFor >= activator.LeastHoldFor && a.HoldFor <= activator.MostHoldFor, a.HoldFor, "1s to 1h"},
		{"most-held", a.MostHeld >= 1 && a.MostHeld <= activator.MostMostHeld, a.MostHeld, "1 to 100000"},
		{"most-connections", a.MostConnections >= 1 && a.MostConnections <= activator.MostMostConnections, a.MostConnections, "1 to 100000"},
		{"kube-api-qps", s.qps > 0, s.qps, "above 0"},
		{"kube-api-burst", s.burst >= 1, s.burst, "1 or more"},
		{"strip-headers", all(a.StripHeaders, activator.IsHeader), a.StripHeaders, "names of headers such as X-Forwarded-User, without Host and Cookie"},
		{"strip-cookies", all(a.StripCookies, activator.IsCookie), a.StripCookies, "names of cookies such as _oauth2_proxy*"},
	} {
		if !v.legal {
			return fmt.Errorf("--%s: %v is not legal, legal is %s", v.flag, v.value, v.want)
		}
	}
	return nil
}
