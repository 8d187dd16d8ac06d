package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"

	"github.com/tandem-gpu/tandem/internal/podgroup"
)

// podGroups finds out which PodGroups the API server has before the scheduler starts, sets the feature gate by it, and ends
// the scheduler when others appear: gates cannot change while it runs.
//
// A scheduler with the gate on waits for ever for an API that is not served, without a word; one with the gate off does not
// see the PodGroups of Kubernetes.
type podGroups struct {
	gate featuregate.MutableFeatureGate
	// patience with an API server that does not answer at start.
	patience podgroup.Patience
	// every is the pause between two looks for what was absent at start.
	every time.Duration
	// ended is set before the scheduler is ended to be started anew.
	ended atomic.Bool
}

// newPodGroups returns what sets the gates of this process.
func newPodGroups() *podGroups {
	return &podGroups{
		gate: utilfeature.DefaultMutableFeatureGate,
		// A minute outlives a restart of the API server; whoever starts the scheduler sees then that it cannot.
		patience: podgroup.Patience{Within: time.Minute, First: time.Second, Most: 10 * time.Second, Note: noteUnanswered},
		every:    30 * time.Second,
	}
}

// wrap makes a scheduler's command ask first.
func (p *podGroups) wrap(c *cobra.Command) {
	setGates := c.PersistentPreRunE
	c.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if err := setGates(c, args); err != nil {
			return err
		}
		verflag.PrintAndExitIfRequested()
		return p.start(c)
	}
}

// start checks the profiles, sets the gate and starts to look for what is absent.
func (p *podGroups) start(c *cobra.Command) error {
	connection, ok := connectionOf(c)
	if !ok {
		return nil // the scheduler says what is wrong with its configuration, and needs no API server for that
	}
	if err := checkProfiles(c); err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(connection)
	if err != nil {
		return fmt.Errorf("find out which PodGroups are served: %w", err)
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	served, err := podgroup.Await(ctx, client, p.patience)
	if err != nil {
		return fmt.Errorf("find out which PodGroups are served: %w", err)
	}
	klog.InfoS("Found PodGroups", "scheduling.k8s.io", served.Native, "scheduling.x-k8s.io", served.XK8s)
	if err := setGate(p.gate, given(c), served); err != nil {
		return err
	}
	go p.restart(ctx, client, served)
	return nil
}

func noteUnanswered(err error, pause time.Duration) {
	if pause > 0 {
		klog.ErrorS(err, "The API server does not say which PodGroups it has", "askingAgainIn", pause)
	}
}

// restart ends the scheduler as a signal would when an API appears that was absent: its lease is given back, and what
// started it starts it anew.
func (p *podGroups) restart(ctx context.Context, client discovery.DiscoveryInterface, served podgroup.Served) {
	now, ok := podgroup.Appeared(ctx, client, served, p.every)
	if !ok {
		return
	}
	klog.InfoS("Ending to be started anew: the API server has PodGroups that it did not have at start",
		"scheduling.k8s.io", now.Native, "scheduling.x-k8s.io", now.XK8s)
	p.ended.Store(true)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		klog.ErrorS(err, "Ending by a signal failed")
		klog.FlushAndExit(klog.ExitFlushTimeout, 0)
	}
}

// exitCode is that of the process: 0 where it ended to be started anew.
func (p *podGroups) exitCode(code int) int {
	if p.ended.Load() {
		return 0
	}
	return code
}

// given returns the value that the flag --feature-gates gives the gate, "" for none. The last one counts.
func given(c *cobra.Command) string {
	flag := c.Flags().Lookup("feature-gates")
	if flag == nil {
		return ""
	}
	for _, setting := range slices.Backward(strings.Split(flag.Value.String(), ",")) {
		_, setting, _ = strings.Cut(setting, ":") // the component
		name, value, _ := strings.Cut(setting, "=")
		if strings.TrimSpace(name) == string(features.GenericWorkload) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// setGate sets the gate by what is served, unless it was given. It refuses a gate that was switched on for an API that is
// not served.
func setGate(gate featuregate.MutableFeatureGate, given string, served podgroup.Served) error {
	enabled := gate.Enabled(features.GenericWorkload)
	switch {
	case enabled == served.Native:
		return nil
	case given != "" && !enabled:
		klog.InfoS("The feature gate GenericWorkload is off by --feature-gates: the members of PodGroups are queued one by one")
		return nil
	case given != "":
		return fmt.Errorf("--feature-gates: GenericWorkload=%s: the API server does not serve podgroups of scheduling.k8s.io/v1beta1, "+
			"and the scheduler would wait for them for ever: start kube-apiserver with --feature-gates=GenericWorkload=true "+
			"--runtime-config=scheduling.k8s.io/v1beta1=true, or leave the gate out: the scheduler sets it by what is served", given)
	}
	if err := gate.SetFromMap(map[string]bool{string(features.GenericWorkload): served.Native}); err != nil {
		are := "are"
		if !served.Native {
			are = "are not"
		}
		return fmt.Errorf("set feature gate GenericWorkload=%v, as podgroups of scheduling.k8s.io/v1beta1 %s served: %w", served.Native, are, err)
	}
	return nil
}
