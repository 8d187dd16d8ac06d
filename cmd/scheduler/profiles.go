package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
)

// checkProfiles returns what is wrong with the profiles of a legal configuration: the scheduler would start with them, and do
// what nobody means.
func checkProfiles(c *cobra.Command) error {
	file := c.Flags().Lookup("config")
	if file == nil || file.Value.String() == "" {
		return nil
	}
	loaded, err := options.LoadConfigFromFile(klog.Background(), file.Value.String())
	if err != nil {
		return err
	}
	for i := range loaded.Profiles {
		if at := doublePreemption(loaded.Profiles[i].Plugins); at != "" {
			return fmt.Errorf("profiles[%d].plugins.%s: %s and %s are enabled, and the second would evict whom the first guards: disable %[4]s under multiPoint",
				i, at, gpupreempt.Name, names.DefaultPreemption)
		}
	}
	return nil
}

// doublePreemption returns the first extension point at which a profile runs both GPUPreempt and the plugin that it stands in
// for, "" for none.
func doublePreemption(plugins *schedulerconfig.Plugins) string {
	if plugins == nil {
		return ""
	}
	for _, point := range []struct {
		name string
		set  *schedulerconfig.PluginSet
	}{{"postFilter", &plugins.PostFilter}, {"podGroupPostFilter", &plugins.PodGroupPostFilter}} {
		if runs(plugins, point.set, gpupreempt.Name) && runs(plugins, point.set, names.DefaultPreemption) {
			return point.name
		}
	}
	return ""
}

// runs reports whether a plugin that has an extension point runs at it.
func runs(plugins *schedulerconfig.Plugins, point *schedulerconfig.PluginSet, name string) bool {
	is := func(p schedulerconfig.Plugin) bool { return p.Name == name }
	if slices.ContainsFunc(point.Enabled, is) {
		return true
	}
	disabled := slices.ContainsFunc(point.Disabled, func(p schedulerconfig.Plugin) bool { return p.Name == name || p.Name == "*" })
	return !disabled && slices.ContainsFunc(plugins.MultiPoint.Enabled, is)
}
