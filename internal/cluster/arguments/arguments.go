// Package arguments reads the arguments of Tandem's plugins from a KubeSchedulerConfiguration, for programs that go by them beside the
// scheduler.
package arguments

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	inTree "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // the decoder then knows the arguments
	"github.com/tandem-gpu/tandem/pkg/placement"
)

// Names of the plugins in a configuration.
const (
	GPUShare   = "GPUShare"
	GPUGang    = "GPUGang"
	GPUPreempt = "GPUPreempt"
)

// defaults is the configuration of which all arguments are the defaults.
const defaults = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: GPUShare}, {name: GPUGang}, {name: GPUPreempt}], disabled: [{name: DefaultPreemption}]}}
`

// Arguments are the legal arguments of Tandem's plugins. Those of a plugin that the profile does not enable are nil; Share never is.
type Arguments struct {
	Share   *config.GPUShareArgs
	Gang    *config.GPUGangArgs
	Preempt *config.GPUPreemptArgs
	// Stock says that the profile evicts pods by the preemption of Kubernetes, which knows none of these arguments.
	Stock bool
	// Configuration is what they were read from, and Profile the one of its profiles that enables GPUShare.
	Configuration *schedulerconfig.KubeSchedulerConfiguration
	Profile       *schedulerconfig.KubeSchedulerProfile
}

// Defaults returns the arguments that a configuration has which enables the plugins and says nothing else.
func Defaults() (*Arguments, error) { return Read([]byte(defaults)) }

// Read returns the arguments in a KubeSchedulerConfiguration. The error names the field that is not legal.
func Read(raw []byte) (*Arguments, error) {
	c, err := decode(raw)
	if err != nil {
		return nil, err
	}
	p, err := profileOf(c)
	if err != nil {
		return nil, err
	}
	a := &Arguments{
		Share: argsOf[config.GPUShareArgs](p, GPUShare, &p.Plugins.Filter), Gang: argsOf[config.GPUGangArgs](p, GPUGang, &p.Plugins.Permit),
		Preempt: argsOf[config.GPUPreemptArgs](p, GPUPreempt, &p.Plugins.PostFilter), Configuration: c, Profile: p,
		Stock: Runs(p.Plugins, &p.Plugins.PostFilter, names.DefaultPreemption),
	}
	at := func(plugin string) *field.Path {
		return field.NewPath("profiles").Key(p.SchedulerName).Child("pluginConfig").Key(plugin).Child("args")
	}
	errs := config.ValidateGPUShareArgs(a.Share, placement.Policies(), at(GPUShare))
	if a.Gang != nil {
		errs = append(errs, config.ValidateGPUGangArgs(a.Gang, at(GPUGang))...)
	}
	if a.Preempt != nil {
		errs = append(errs, config.ValidateGPUPreemptArgs(a.Preempt, at(GPUPreempt))...)
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return a, nil
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

// profileOf returns the one profile that enables GPUShare.
func profileOf(c *schedulerconfig.KubeSchedulerConfiguration) (*schedulerconfig.KubeSchedulerProfile, error) {
	var found *schedulerconfig.KubeSchedulerProfile
	for i := range c.Profiles {
		p := &c.Profiles[i]
		if p.Plugins == nil || argsOf[config.GPUShareArgs](p, GPUShare, &p.Plugins.Filter) == nil {
			continue
		}
		if found != nil {
			return nil, errors.New("profiles: several enable GPUShare, legal is one")
		}
		found = p
	}
	if found == nil {
		return nil, errors.New("profiles: none enables GPUShare, legal is one that does")
	}
	return found, nil
}

// Runs reports whether a plugin that has an extension point runs at it.
func Runs(plugins *schedulerconfig.Plugins, point *schedulerconfig.PluginSet, name string) bool {
	is := func(p schedulerconfig.Plugin) bool { return p.Name == name }
	if slices.ContainsFunc(point.Enabled, is) {
		return true
	}
	disabled := slices.ContainsFunc(point.Disabled, func(p schedulerconfig.Plugin) bool { return p.Name == name || p.Name == "*" })
	return !disabled && slices.ContainsFunc(plugins.MultiPoint.Enabled, is)
}

// argsOf returns the arguments of a plugin, nil where it does not run at the extension point that it is for: arguments may be left from before, or be
// shared by several profiles.
func argsOf[T any](p *schedulerconfig.KubeSchedulerProfile, plugin string, point *schedulerconfig.PluginSet) *T {
	if !Runs(p.Plugins, point, plugin) {
		return nil
	}
	for i := range p.PluginConfig {
		if args, ok := p.PluginConfig[i].Args.(any).(*T); ok && p.PluginConfig[i].Name == plugin {
			return args
		}
	}
	return nil
}
