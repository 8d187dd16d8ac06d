package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

// manifests decodes the built-in objects of deploy/ strictly: a misspelt field fails.
func manifests(t *testing.T) []runtime.Object {
	t.Helper()
	raw, err := render("deploy")
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var objects []runtime.Object
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) { // the CRD, which the API server checks
			continue
		}
		if err != nil {
			t.Fatalf("decode: %v\n%s", err, document)
		}
		objects = append(objects, object)
	}
}

// podSpecs returns what deploy/ runs, by name.
func podSpecs(t *testing.T) map[string]corev1.PodSpec {
	t.Helper()
	specs := map[string]corev1.PodSpec{}
	for _, object := range manifests(t) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			specs[o.Name] = o.Spec.Template.Spec
		case *appsv1.DaemonSet:
			specs[o.Name] = o.Spec.Template.Spec
		}
	}
	if len(specs) != 2 {
		t.Fatalf("deploy/ runs %d workloads, want the scheduler and the agent", len(specs))
	}
	return specs
}

func TestContainersAreConfined(t *testing.T) {
	for name, spec := range podSpecs(t) {
		if p := spec.SecurityContext.SeccompProfile; p == nil || p.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: seccomp profile %v", name, p)
		}
		for _, c := range spec.Containers {
			s := c.SecurityContext
			if !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || s.Privileged != nil || s.Capabilities.Add != nil ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
				t.Errorf("%s/%s: security context %v", name, c.Name, s)
			}
			if strings.Contains(c.Image, "/") {
				t.Errorf("%s/%s: image %s names a registry", name, c.Name, c.Image)
			}
			if c.LivenessProbe == nil || c.ReadinessProbe == nil {
				t.Errorf("%s/%s: no probes", name, c.Name)
			}
		}
	}
}

// The names of the ConfigMaps are generated: what mounts them must follow.
func TestConfigMapsExist(t *testing.T) {
	var maps []string
	for _, object := range manifests(t) {
		if m, ok := object.(*corev1.ConfigMap); ok {
			maps = append(maps, m.Name)
		}
	}
	for name, spec := range podSpecs(t) {
		mounted := 0
		for _, volume := range spec.Volumes {
			if volume.ConfigMap == nil {
				continue
			}
			mounted++
			if !slices.Contains(maps, volume.ConfigMap.Name) {
				t.Errorf("%s mounts ConfigMap %s, there are %v", name, volume.ConfigMap.Name, maps)
			}
		}
		if mounted != 1 {
			t.Errorf("%s mounts %d ConfigMaps, want its configuration", name, mounted)
		}
	}
}
