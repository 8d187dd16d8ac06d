// Package agent tests that the manifests of the agent fit the agent: its configuration file, and its folders.
package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/deviceplugin"
	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// file returns the path of a manifest of the agent.
func file(t *testing.T, name string) string {
	t.Helper()
	root, err := sandbox.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy", "agent", name)
}

func TestAgentConfigurationLoads(t *testing.T) {
	if _, err := deviceplugin.LoadConfig(file(t, "config.yaml")); err != nil {
		t.Error(err)
	}
}

// Every folder that the agent uses by default is one of the host, at the same path: the container runtime and MPS's
// clients look for them there.
func TestAgentMountsItsFolders(t *testing.T) {
	raw, err := os.ReadFile(file(t, "daemonset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var daemonSet appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(raw, &daemonSet); err != nil {
		t.Fatal(err)
	}
	spec := daemonSet.Spec.Template.Spec
	host := map[string]string{}
	for _, volume := range spec.Volumes {
		if volume.HostPath != nil {
			host[volume.Name] = volume.HostPath.Path
		}
	}
	mounts := map[string]corev1.VolumeMount{}
	for _, mount := range spec.Containers[0].VolumeMounts {
		if path, ok := host[mount.Name]; ok {
			mounts[mount.MountPath] = mount
			if path != mount.MountPath {
				t.Errorf("%s of the host is mounted at %s", path, mount.MountPath)
			}
		}
	}
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	new(deviceplugin.Options).AddFlags(flags)
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
