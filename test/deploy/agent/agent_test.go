// Package agent tests that the manifests of the agent fit the agent: its configuration file, and its folders.
package agent

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/deviceplugin"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// file returns the path of a manifest of the agent.
func file(t *testing.T, name string) string {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	return filepath.Join(root, "deploy", "agent", name)
}

func TestAgentConfigurationLoads(t *testing.T) {
	if _, err := config.Load(file(t, "config.yaml")); err != nil {
		t.Error(err)
	}
}

// The file is the reference of the configuration: every field stands in it.
func TestAgentConfigurationIsComplete(t *testing.T) {
	raw, err := os.ReadFile(file(t, "config.yaml"))
	must.OK(t, err)
	var written map[string]any
	must.OK(t, yaml.UnmarshalStrict(raw, &written))
	have := map[string]bool{}
	var read func(prefix string, m map[string]any)
	read = func(prefix string, m map[string]any) {
		for name, value := range m {
			have[prefix+name] = true
			if below, ok := value.(map[string]any); ok {
				read(prefix+name+".", below)
			}
		}
	}
	read("", written)
	for _, field := range fields("", reflect.TypeFor[config.Config]()) {
		if !have[field] {
			t.Errorf("deploy/agent/config.yaml does not mention %s", field)
		}
	}
}

// fields lists the JSON paths of a struct.
func fields(prefix string, s reflect.Type) []string {
	var list []string
	for i := range s.NumField() {
		name, _, _ := strings.Cut(s.Field(i).Tag.Get("json"), ",")
		list = append(list, prefix+name)
		if s.Field(i).Type.Kind() == reflect.Struct {
			list = append(list, fields(prefix+name+".", s.Field(i).Type)...)
		}
	}
	return list
}

// Every folder that the agent uses by default is one of the host, at the same path: the container runtime and MPS's
// clients look for them there.
func TestAgentMountsItsFolders(t *testing.T) {
	raw, err := os.ReadFile(file(t, "daemonset.yaml"))
	must.OK(t, err)
	var daemonSet appsv1.DaemonSet
	must.OK(t, yaml.UnmarshalStrict(raw, &daemonSet))
	spec := daemonSet.Spec.Template.Spec
	host := map[string]string{}
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			host[volume.Name] = volume.HostPath.Path
		}
	}
	const hostRoot = "/host"
	mounts := map[string]corev1.VolumeMount{}
	for _, mount := range spec.Containers[0].VolumeMounts {
		if path, ok := host[mount.Name]; ok {
			mounts[mount.MountPath] = mount
			below, underRoot := strings.CutPrefix(mount.MountPath, hostRoot)
			switch {
			case underRoot && below == path && !mount.ReadOnly:
				t.Errorf("%s of the host can be written to", path)
			case mount.MountPath == "/dev/shm": // checked beside that of MPS
			case below != path:
				t.Errorf("%s of the host is mounted at %s", path, mount.MountPath)
			}
		}
	}
	options := new(deviceplugin.Options)
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	options.AddFlags(flags)
	config, shm := flags.String("config", "", ""), flags.String("mps-shm-dir", "", "") // of cmd/device-plugin
	must.OK(t, flags.Parse(spec.Containers[0].Args))
	if *config != "/etc/tandem/config.yaml" || options.HostRoot != hostRoot || *shm != host["shm"] {
		t.Errorf("args %v", spec.Containers[0].Args)
	}
	for flag, readOnly := range map[string]bool{
		"device-plugin-dir": false, "cdi-dir": false, "state-dir": false, "pod-resources-socket": true, "pods-api-socket": true,
	} {
		folder := flags.Lookup(flag).DefValue
		if strings.HasSuffix(flag, "-socket") {
			folder = filepath.Dir(folder)
		}
		mount, ok := mounts[folder]
		if !ok || mount.ReadOnly != readOnly {
			t.Errorf("--%s: %s is mounted %v, read-only %v", flag, folder, ok, mount.ReadOnly)
		}
	}
	if _, ok := mounts["/run/tandem/mps"]; !ok {
		t.Error("--mps-dir is not mounted")
	}
}
