package proposal

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	inTree "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // the decoder then knows the arguments
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

// Names of the plugins in a configuration.
const (
	gpuShare   = "GPUShare"
	gpuGang    = "GPUGang"
	gpuPreempt = "GPUPreempt"
)

// replaced are the stock plugins in whose place Tandem's are, and GPUQueue, whose order a simulation has but for the seconds by
// which it puts back pods of several containers.
var replaced = []string{"DefaultPreemption", "GangScheduling", "TopologyPlacementGenerator", "PrioritySort", "GPUQueue"}

// defaults is the configuration of which all arguments are the defaults.
const defaults = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: GPUShare}, {name: GPUGang}, {name: GPUPreempt}], disabled: [{name: DefaultPreemption}]}}
`

// grace is how long a victim stays that does not say it: the default of Kubernetes.
const grace = 30 * time.Second

// Defaults returns the rules of a scheduler whose arguments are the defaults.
func Defaults() (*outlook.Rules, error) {
	r, _, err := Rules([]byte(defaults))
	return r, err
}

// Rules returns the rules of the profile of a KubeSchedulerConfiguration that enables GPUShare. notes names what differs from the defaults
// and makes no difference to a simulation.
func Rules(raw []byte) (r *outlook.Rules, notes []string, err error) {
	c, err := decode(raw)
	if err != nil {
		return nil, nil, err
	}
	p, err := profileOf(c)
	if err != nil {
		return nil, nil, err
	}
	r = &outlook.Rules{}
	path := field.NewPath("profiles").Key(p.SchedulerName).Child("pluginConfig")
	if err := setShare(r, argsOf[config.GPUShareArgs](p, gpuShare), path.Key(gpuShare).Child("args")); err != nil {
		return nil, nil, err
	}
	if err := setGangs(r, argsOf[config.GPUGangArgs](p, gpuGang), path.Key(gpuGang).Child("args")); err != nil {
		return nil, nil, err
	}
	if err := setPreemption(r, argsOf[config.GPUPreemptArgs](p, gpuPreempt), path.Key(gpuPreempt).Child("args")); err != nil {
		return nil, nil, err
	}
	notes, err = withoutEffect(c, p)
	return r, notes, err
}

// decode reads a KubeSchedulerConfiguration, and says what the file has instead: most likely the ConfigMap around it.
func decode(raw []byte) (*schedulerconfig.KubeSchedulerConfiguration, error) {
	object, _, err := inTree.Codecs.UniversalDecoder().Decode(raw, nil, nil)
	c, ok := object.(*schedulerconfig.KubeSchedulerConfiguration)
	switch {
	case runtime.IsNotRegisteredError(err), runtime.IsMissingKind(err), runtime.IsMissingVersion(err), err == nil && !ok:
		var is metav1.TypeMeta
		if err := yaml.Unmarshal(raw, &is); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("apiVersion and kind: %q and %q, legal are kubescheduler.config.k8s.io/v1 and KubeSchedulerConfiguration", is.APIVersion, is.Kind)
	case err != nil:
		return nil, err
	}
	return c, nil
}

// profileOf returns the one profile that has arguments of GPUShare: the decoder gives them to each profile that enables it.
func profileOf(c *schedulerconfig.KubeSchedulerConfiguration) (*schedulerconfig.KubeSchedulerProfile, error) {
	var found *schedulerconfig.KubeSchedulerProfile
	for i := range c.Profiles {
		if argsOf[config.GPUShareArgs](&c.Profiles[i], gpuShare) == nil {
			continue
		}
		if found != nil {
			return nil, errors.New("profiles: several enable GPUShare, legal is one")
		}
		found = &c.Profiles[i]
	}
	if found == nil {
		return nil, errors.New("profiles: none enables GPUShare, legal is one that does")
	}
	return found, nil
}

// argsOf returns the arguments of a plugin, nil where the profile does not enable it.
func argsOf[T any](p *schedulerconfig.KubeSchedulerProfile, plugin string) *T {
	for i := range p.PluginConfig {
		if args, ok := p.PluginConfig[i].Args.(any).(*T); ok && p.PluginConfig[i].Name == plugin {
			return args
		}
	}
	return nil
}

func setShare(r *outlook.Rules, args *config.GPUShareArgs, path *field.Path) error {
	if errs := config.ValidateGPUShareArgs(args, placement.Policies(), path); len(errs) > 0 {
		return errs.ToAggregate()
	}
	var err error
	if r.Policy, err = placement.ByName(args.Policy); err != nil {
		return err
	}
	if r.Seed = args.Seed; len(args.TypicalRequests) == 0 {
		return nil
	}
	if r.Mix, err = workloads.GivenMix(args.TypicalRequests); err != nil {
		return fmt.Errorf("%s: %w", path.Child("typicalRequests"), err)
	}
	return nil
}

func setGangs(r *outlook.Rules, args *config.GPUGangArgs, path *field.Path) error {
	if args == nil {
		return nil
	}
	if errs := config.ValidateGPUGangArgs(args, path); len(errs) > 0 {
		return errs.ToAggregate()
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
	return nil
}

// setPreemption sets whom the scheduler evicts. Without GPUPreempt the stock plugin does that.
func setPreemption(r *outlook.Rules, args *config.GPUPreemptArgs, path *field.Path) error {
	r.Preemption = sim.PreemptionConfig{Policy: sim.PreemptInTree, Grace: grace}
	if args == nil {
		return nil
	}
	if errs := config.ValidateGPUPreemptArgs(args, path); len(errs) > 0 {
		return errs.ToAggregate()
	}
	if r.Preemption.Policy = sim.PreemptNobody; args.Mode == config.PreemptionEnabled {
		r.Preemption.Policy = sim.PreemptTandem
	}
	if most := args.MaximumGracePeriod.Duration; most > 0 {
		r.Preemption.Grace = min(grace, most)
	}
	prices := victims.PricesOf(&args.Prices)
	r.Preemption.MaxSteps, r.Preemption.Prices = int(args.MaxSteps), &prices
	return nil
}

// effective are the arguments that a simulation goes by, by plugin. Others concern workloads, binds, guards or the speed of evictions.
var effective = map[string][]string{
	gpuShare: {"Policy", "Seed", "TypicalRequests"}, gpuGang: {"DrainAfter", "Drain", "DrainTimeout", "MaxDomains", "PreferredTopology"},
	gpuPreempt: {"Mode", "MaximumGracePeriod", "MaxSteps", "Prices"},
	// The simulation counts slots by device, as with the deployed configuration.
	"NodeResourcesFit": {"IgnoredResources", "IgnoredResourceGroups"},
}

// operational are the fields of a configuration that concern the program and no decision.
var operational = []string{"LeaderElection", "ClientConnection", "Parallelism", "DelayCacheUntilActive", "Profiles"}

// withoutEffect names what differs from the defaults and what a simulation does not go by: arguments, extenders, other plugins.
func withoutEffect(c *schedulerconfig.KubeSchedulerConfiguration, p *schedulerconfig.KubeSchedulerProfile) ([]string, error) {
	object, _, err := inTree.Codecs.UniversalDecoder().Decode([]byte(defaults), nil, nil)
	if err != nil {
		return nil, err
	}
	standard := object.(*schedulerconfig.KubeSchedulerConfiguration)
	usual := &standard.Profiles[0]
	all := differing("", reflect.ValueOf(c).Elem(), reflect.ValueOf(standard).Elem(), operational)
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
