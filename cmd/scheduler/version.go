package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/tandem-gpu/tandem/internal/version"
)

// printVersion handles --version: it prints Tandem's version and ends the process. Upstream would print the version of
// Kubernetes' modules alone.
func printVersion(c *cobra.Command) {
	if f := c.Flags().Lookup("version"); f != nil && f.Value.String() != "false" {
		fmt.Fprintf(c.OutOrStdout(), "%s %s\n", c.Name(), version.Get())
		os.Exit(0)
	}
}

// serveVersion adds Tandem's version to the metrics, beside that of Kubernetes' modules.
func serveVersion() error {
	g := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: version.Metric, Help: version.MetricHelp, StabilityLevel: metrics.ALPHA,
	}, version.MetricLabels())
	if err := legacyregistry.Register(g); err != nil {
		return fmt.Errorf("serve the version as a metric: %w", err)
	}
	g.WithLabelValues(version.Get().Values()...).Set(1)
	return nil
}
