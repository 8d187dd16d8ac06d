package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/discovery"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/internal/version"
)

// gated is a resource that the scheduler reads where a feature gate is on. For a resource that the API server lacks the
// scheduler waits for ever, without a message.
type gated struct {
	gate     featuregate.Feature
	resource schema.GroupVersionResource
	// follows: setGates also switches the gate on, where the API server has the resource. It only switches other gates
	// off.
	follows bool
	// serve says what an administrator does to have it served.
	serve string
}

// optional are the resources that this scheduler can do without.
func optional() []gated {
	return []gated{
		{
			gate: features.GenericWorkload, resource: membership.NativePodGroups, follows: true,
			serve: "start kube-apiserver with --feature-gates=GenericWorkload=true --runtime-config=scheduling.k8s.io/v1beta1=true",
		},
		{
			gate: features.CompositePodGroup, resource: schedulingv1alpha3.SchemeGroupVersion.WithResource("compositepodgroups"),
			serve: "start kube-apiserver with --feature-gates=CompositePodGroup=true --runtime-config=scheduling.k8s.io/v1alpha3=true and the gates that this one needs",
		},
		{
			gate: features.DRADeviceTaintRules, resource: resourcev1.SchemeGroupVersion.WithResource("devicetaintrules"),
			serve: "it is served from Kubernetes 1.37 on",
		},
	}
}

// required are the resources that the scheduler reads whatever its gates are and that some API server in use does not have: all
// others are older than any.
func required() []schema.GroupVersionResource {
	of := resourcev1.SchemeGroupVersion
	return []schema.GroupVersionResource{of.WithResource("deviceclasses"), of.WithResource("resourceclaims"), of.WithResource("resourceslices")}
}

// gates sets the feature gates of a scheduler by what its API server has, before it starts, and ends it when that changes: gates
// cannot change while it runs.
type gates struct {
	gate featuregate.MutableFeatureGate
	// patience with an API server that does not answer at start.
	patience served.Patience
	// every is the pause between two looks whether the API server has others.
	every time.Duration
	ending
}

// newGates returns what sets the gates of this process.
func newGates() *gates {
	return &gates{
		gate: utilfeature.DefaultMutableFeatureGate,
		// A minute outlives a restart of the API server. After it the scheduler ends and says why.
		patience: served.Patience{Within: time.Minute, First: time.Second, Most: 10 * time.Second, Note: noteUnanswered},
		every:    30 * time.Second,
	}
}

// wrap makes a scheduler's command query the API server first.
func (g *gates) wrap(c *cobra.Command) {
	setGates := c.PersistentPreRunE
	c.PersistentPreRunE = func(c *cobra.Command, args []string) error {
		if err := setGates(c, args); err != nil {
			return err
		}
		printVersion(c)
		klog.InfoS("Starting Tandem's scheduler", "version", version.Get().String())
		return g.start(c)
	}
}

// start checks the profiles, sets the gates and starts to look for what changes.
func (g *gates) start(c *cobra.Command) error {
	if err := checkKubeconfig(c); err != nil {
		return err
	}
	connection, ok := connectionOf(c)
	if !ok {
		if file := c.Flags().Lookup("config"); file != nil && file.Value.String() != "" {
			if err := checkValues(file.Value.String()); err != nil {
				return err
			}
		}
		return nil // the scheduler says what is wrong with its configuration, and needs no API server for that
	}
	if err := checkProfiles(c); err != nil {
		return err
	}
	client, err := discovery.NewDiscoveryClientForConfig(connection)
	if err != nil {
		return fmt.Errorf("find out what the API server serves: %w", err)
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	has, err := served.Await(ctx, client, g.patience, asked()...)
	if err != nil {
		return fmt.Errorf("find out what the API server serves: %w", err)
	}
	if err := checkRequired(has); err != nil {
		return err
	}
	groups := podgroup.ServedOf(has)
	klog.InfoS("Found PodGroups", "scheduling.k8s.io", groups.Native, "scheduling.x-k8s.io", groups.XK8s)
	if err := preferGates(g.gate, func(gate featuregate.Feature) string { return given(c, gate) }); err != nil {
		return err
	}
	if err := setGates(g.gate, func(gate featuregate.Feature) string { return given(c, gate) }, has); err != nil {
		return err
	}
	go g.restart(ctx, client, watched(has))
	return nil
}

// asked returns all resources of the query.
func asked() []schema.GroupVersionResource {
	resources := append(podgroup.Resources(), required()...)
	for _, o := range optional() {
		if !slices.Contains(resources, o.resource) {
			resources = append(resources, o.resource)
		}
	}
	return resources
}

// watched are those of the resources whose coming or going makes a difference: a PodGroup in a second version makes none.
func watched(has served.Set) served.Set {
	if has[membership.NativePodGroups] {
		delete(has, membership.StablePodGroups)
	}
	return has
}

func noteUnanswered(err error, pause time.Duration) {
	if pause > 0 {
		klog.ErrorS(err, "The API server does not say what it serves", "askingAgainIn", pause)
	}
}

// restart ends the scheduler when the API server has other resources than at start.
func (g *gates) restart(ctx context.Context, client discovery.DiscoveryInterface, before served.Set) {
	now, ok := served.Changed(ctx, client, before, g.every)
	if !ok {
		return
	}
	for resource, has := range now {
		if has != before[resource] {
			klog.InfoS("Ending to be started anew: the API server has other resources than at start", "resource", resource.String(), "served", has)
		}
	}
	g.end(nil)
}

// checkRequired says what the API server lacks that the scheduler cannot do without.
func checkRequired(has served.Set) error {
	for _, r := range required() {
		if !has[r] {
			return fmt.Errorf("the API server does not serve %s of %s, and this scheduler, which is built on Kubernetes 1.37, would wait for them for ever: "+
				"it needs an API server of Kubernetes 1.34 or later that serves %[2]s", r.Resource, r.GroupVersion())
		}
	}
	return nil
}

// given returns the value that the flag --feature-gates gives a gate, "" for none. The last one counts.
func given(c *cobra.Command, gate featuregate.Feature) string {
	flag := c.Flags().Lookup("feature-gates")
	if flag == nil {
		return ""
	}
	for _, setting := range slices.Backward(strings.Split(flag.Value.String(), ",")) {
		_, setting, _ = strings.Cut(setting, ":") // the component
		name, value, _ := strings.Cut(setting, "=")
		if strings.TrimSpace(name) == string(gate) {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// preferGates switches the gate on with which the framework asks GPUShare once which pods a departure concerns, unless the administrator
// gave it. Kubernetes 1.37 has it off, and then asks about each waiting pod.
func preferGates(gate featuregate.MutableFeatureGate, given func(featuregate.Feature) string) error {
	if given(features.SchedulerPreQueueingHints) != "" {
		return nil
	}
	if err := gate.SetFromMap(map[string]bool{string(features.SchedulerPreQueueingHints): true}); err != nil {
		return fmt.Errorf("set feature gate %s: %w", features.SchedulerPreQueueingHints, err)
	}
	return nil
}

// setGates sets each gate by what the API server serves, except the gates that the administrator gave. setGates refuses
// a given gate that needs what the API server does not serve.
func setGates(gate featuregate.MutableFeatureGate, given func(featuregate.Feature) string, has served.Set) error {
	change := map[string]bool{}
	for _, o := range optional() {
		enabled, is := gate.Enabled(o.gate), has[o.resource]
		switch value := given(o.gate); {
		case enabled == is, !enabled && !o.follows:
			continue
		case value != "" && !enabled:
			klog.InfoS("A feature gate is off by --feature-gates, although the API server serves what it reads", "gate", o.gate, "resource", o.resource.String())
		case value != "":
			return fmt.Errorf("--feature-gates: %s=%s: the API server does not serve %s of %s, and the scheduler would wait for them for ever: "+
				"%s, or leave the gate out: the scheduler sets it by what is served", o.gate, value, o.resource.Resource, o.resource.GroupVersion(), o.serve)
		default:
			klog.InfoS("Set a feature gate by what the API server serves", "gate", o.gate, "enabled", is, "resource", o.resource.String())
			change[string(o.gate)] = is
		}
	}
	if len(change) == 0 {
		return nil
	}
	if err := gate.SetFromMap(change); err != nil {
		return fmt.Errorf("set feature gates %v, as the API server serves what they read, or does not: %w", change, err)
	}
	return nil
}
