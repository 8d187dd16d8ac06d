package main

import (
	"fmt"
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
	f.IntVar(&s.activator.MostHeld, "most-held", 1000, "how many requests wait at a time, an eighth of them for one notebook, 1 to 100000")
	return c
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
		{"kube-api-qps", s.qps > 0, s.qps, "above 0"},
		{"kube-api-burst", s.burst >= 1, s.burst, "1 or more"},
	} {
		if !v.legal {
			return fmt.Errorf("--%s: %v is not legal, legal is %s", v.flag, v.value, v.want)
		}
	}
	return nil
}
