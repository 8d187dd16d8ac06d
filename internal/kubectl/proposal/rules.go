package proposal

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/tandem-gpu/tandem/internal/cluster/arguments"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// replaced are the stock plugins in whose place Tandem's are, and GPUQueue, whose order a simulation has but for the seconds by
// which it puts back pods of several containers.
var replaced = []string{"DefaultPreemption", "GangScheduling", "TopologyPlacementGenerator", "PrioritySort", "GPUQueue"}

// grace is how long a victim stays that does not say it: the default of Kubernetes.
const grace = 30 * time.Second

// Defaults returns the rules of a scheduler whose arguments are the defaults.
func Defaults() (*outlook.Rules, error) {
	a, err := arguments.Defaults()
	if err != nil {
		return nil, err
	}
	return rulesOf(a)
}

// Rules returns the rules of the profile of a KubeSchedulerConfiguration that enables GPUShare. notes names what differs from the defaults
// and makes no difference to a simulation.
func Rules(raw []byte) (r *outlook.Rules, notes []string, err error) {
	a, err := arguments.Read(raw)
	if err != nil {
		return nil, nil, err
	}
	if r, err = rulesOf(a); err != nil {
		return nil, nil, err
	}
	notes, err = withoutEffect(a)
	return r, notes, err
}

func rulesOf(a *arguments.Arguments) (*outlook.Rules, error) {
	r := &outlook.Rules{}
	if err := setShare(r, a.Share); err != nil {
		return nil, err
	}
	setGangs(r, a.Gang)
	setPreemption(r, a.Preempt)
	return r, nil
}

func setShare(r *outlook.Rules, args *config.GPUShareArgs) error {
	var err error
	if r.Policy, err = placement.ByName(args.Policy); err != nil {
		return err
	}
	if r.Seed = args.Seed; len(args.TypicalRequests) == 0 {
		return nil
	}
	if r.Mix, err = workloads.GivenMix(args.TypicalRequests); err != nil {
		return fmt.Errorf("typicalRequests of GPUShare: %w", err)
	}
	return nil
}

func setGangs(r *outlook.Rules, args *config.GPUGangArgs) {
	if args == nil {
		return
	}
	r.Gangs = sim.GangConfig{MaxDomains: int(args.MaxDomains), DrainAfter: args.DrainAfter.Duration, DrainTimeout: args.DrainTimeout.Duration}
	switch args.Drain {
	case config.DrainBounded:
		r.Gangs.Drains = gang.BoundedDrains
	case config.DrainEnabled:
		r.Gangs.Drains = gang.AllDrains
	default:
		r.Gangs.Drains = gang.NoDrains
	}
	for _, level := range args.PreferredTopology {
		if level == gang.NVLink || level == v1.LabelHostname { // a snapshot does not have the labels of nodes
			r.Preferred = append(r.Preferred, level)
		}
	}
}

// setPreemption sets whom the scheduler evicts. Without GPUPreempt the stock plugin does that.
func setPreemption(r *outlook.Rules, args *config.GPUPreemptArgs) {
	r.Preemption = sim.PreemptionConfig{Policy: sim.PreemptInTree, Grace: grace}
	if args == nil {
		return
	}
	if r.Preemption.Policy = sim.PreemptNobody; args.Mode == config.PreemptionEnabled {
		r.Preemption.Policy = sim.PreemptTandem
	}
	if most := args.MaximumGracePeriod.Duration; most > 0 {
		r.Preemption.Grace = min(grace, most)
	}
	prices := victims.PricesOf(&args.Prices)
	r.Preemption.MaxSteps, r.Preemption.Prices = int(args.MaxSteps), &prices
}

// effective are the arguments that a simulation goes by, by plugin. Others concern workloads, binds, guards or the speed of evictions.
var effective = map[string][]string{
	arguments.GPUShare: {"Policy", "Seed", "TypicalRequests"}, arguments.GPUGang: {"DrainAfter", "Drain", "DrainTimeout", "MaxDomains", "PreferredTopology"},
	arguments.GPUPreempt: {"Mode", "MaximumGracePeriod", "MaxSteps", "Prices"},
	// The simulation counts slots by device, as with the deployed configuration.
	"NodeResourcesFit": {"IgnoredResources", "IgnoredResourceGroups"},
}

// operational are the fields of a configuration that concern the program and no decision.
var operational = []string{"LeaderElection", "ClientConnection", "Parallelism", "DelayCacheUntilActive", "Profiles"}

// withoutEffect names what differs from the defaults and what a simulation does not go by: arguments, extenders, other plugins.
func withoutEffect(a *arguments.Arguments) ([]string, error) {
	standard, err := arguments.Defaults()
	if err != nil {
		return nil, err
	}
	p, usual := a.Profile, standard.Profile
	all := differing("", reflect.ValueOf(a.Configuration).Elem(), reflect.ValueOf(standard.Configuration).Elem(), operational)
	if p.PercentageOfNodesToScore != nil {
		all = append(all, "percentageOfNodesToScore")
	}
	for i := range p.PluginConfig {
		name := p.PluginConfig[i].Name
		k := slices.IndexFunc(usual.PluginConfig, func(u schedulerconfig.PluginConfig) bool { return u.Name == name })
		switch {
		case k < 0 && slices.Contains(replaced, name):
			continue
		case k < 0:
			all = append(all, "the arguments of "+name)
			continue
		}
		all = append(all, differing(name+".", reflect.ValueOf(p.PluginConfig[i].Args).Elem(), reflect.ValueOf(usual.PluginConfig[k].Args).Elem(), effective[name])...)
	}
	return append(all, otherPlugins(p.Plugins, usual.Plugins)...), nil
}

// otherPlugins names the plugins that a profile has beside the usual ones, and those that it lacks. The set of Tandem's own counts.
func otherPlugins(have, usual *schedulerconfig.Plugins) (all []string) {
	plain := namesOf(usual.MultiPoint.Enabled)
	sets := reflect.ValueOf(have).Elem()
	for i := range sets.NumField() {
		set := sets.Field(i).Interface().(schedulerconfig.PluginSet)
		for _, name := range namesOf(set.Enabled) {
			if !slices.Contains(plain, name) && !slices.Contains(replaced, name) {
				all = append(all, "the plugin "+name)
			}
		}
		for _, name := range namesOf(set.Disabled) {
			if !slices.Contains(replaced, name) && !slices.Contains(namesOf(set.Enabled), name) {
				point := sets.Type().Field(i).Name
				all = append(all, fmt.Sprintf("the disabled plugin %s (%s)", name, strings.ToLower(point[:1])+point[1:]))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func namesOf(list []schedulerconfig.Plugin) []string {
	all := make([]string, 0, len(list))
	for _, p := range list {
		all = append(all, p.Name)
	}
	return all
}

// differing names the fields of arguments that differ and are not among the known ones.
func differing(prefix string, args, usual reflect.Value, known []string) (all []string) {
	for _, f := range reflect.VisibleFields(args.Type()) {
		if f.Anonymous || len(f.Index) > 1 || slices.Contains(known, f.Name) {
			continue
		}
		if !reflect.DeepEqual(args.FieldByIndex(f.Index).Interface(), usual.FieldByIndex(f.Index).Interface()) {
			all = append(all, prefix+strings.ToLower(f.Name[:1])+f.Name[1:])
		}
	}
	return all
}
