package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"github.com/tandem-gpu/tandem/internal/cluster/arguments"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

// checkProfiles returns the mistakes in the profiles of a legal configuration: the scheduler would start with them, and
// do what no administrator wants.
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
		if why := outvoted(loaded.Profiles[i].Plugins); why != "" {
			return fmt.Errorf("profiles[%d].plugins: %s", i, why)
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
		if arguments.Runs(plugins, point.set, gpupreempt.Name) && arguments.Runs(plugins, point.set, names.DefaultPreemption) {
			return point.name
		}
	}
	return ""
}

// pointsApart is by how many of 100 points the scores of two nodes differ at least that GPUShare ranks: the least that its weight
// is multiplied with.
const pointsApart = 1

// outvoted returns what is wrong with the weight of GPUShare among the plugins that score, "" for nothing: the others may add up to
// 100 points each, times their weights.
func outvoted(plugins *schedulerconfig.Plugins) string {
	if plugins == nil || !arguments.Runs(plugins, &plugins.Score, gpushare.Name) {
		return ""
	}
	own, others := int64(1), int64(0)
	for name, weight := range scoring(plugins) {
		if name == gpushare.Name {
			own = weight
		} else {
			others += weight
		}
	}
	if least := others * 100 / pointsApart; own <= least {
		return fmt.Sprintf("%s has the weight %d, and the other plugins can add up to %d points: they would outvote where GPUs are used best: "+
			"set a weight above %[3]d, for example 2000 under multiPoint", gpushare.Name, own, least)
	}
	return ""
}

// scoring returns the weights of the plugins that score. A plugin of multiPoint without a weight, except GPUShare, does
// not score.
func scoring(plugins *schedulerconfig.Plugins) map[string]int64 {
	weights := map[string]int64{}
	for _, p := range plugins.MultiPoint.Enabled {
		if (p.Weight > 0 || p.Name == gpushare.Name) && arguments.Runs(plugins, &plugins.Score, p.Name) {
			weights[p.Name] = max(1, int64(p.Weight))
		}
	}
	for _, p := range plugins.Score.Enabled {
		weights[p.Name] = max(1, int64(p.Weight))
	}
	return weights
}

// checkKubeconfig refuses --kubeconfig beside a configuration that says otherwise: upstream passes over the flag without a word.
func checkKubeconfig(c *cobra.Command) error {
	file, given := c.Flags().Lookup("config"), c.Flags().Lookup("kubeconfig")
	if file == nil || given == nil || file.Value.String() == "" || given.Value.String() == "" {
		return nil
	}
	loaded, err := options.LoadConfigFromFile(klog.Background(), file.Value.String())
	if err != nil {
		return nil //nolint:nilerr // upstream says so
	}
	if has := loaded.ClientConnection.Kubeconfig; has != given.Value.String() {
		return fmt.Errorf("--kubeconfig: %s has no effect beside --config, whose clientConnection.kubeconfig is %q: "+
			"set it there, or leave the flag out", given.Value, has)
	}
	return nil
}
