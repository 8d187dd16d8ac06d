package fakeserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Resource is a resource that a server has beside those of every API server.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	// rules of its objects, nil for none.
	rules *rules
}

// kind is how the objects of a resource are.
type kind struct {
	name       string
	namespaced bool
	rules      *rules
}

// usual are the versions of groups that every API server has.
var usual = []schema.GroupVersion{
	v1.SchemeGroupVersion, {Group: "apps", Version: "v1"}, {Group: "autoscaling", Version: "v2"}, {Group: "batch", Version: "v1"}, {Group: "coordination.k8s.io", Version: "v1"},
	{Group: "discovery.k8s.io", Version: "v1"}, {Group: "events.k8s.io", Version: "v1"}, {Group: "policy", Version: "v1"}, {Group: "rbac.authorization.k8s.io", Version: "v1"}, {Group: "resource.k8s.io", Version: "v1"},
	{Group: "scheduling.k8s.io", Version: "v1"}, {Group: "storage.k8s.io", Version: "v1"},
}

// clustered are the kinds of those whose objects are in no namespace.
var clustered = []string{
	"Node", "Namespace", "PersistentVolume", "PriorityClass", "StorageClass", "CSINode", "CSIDriver", "VolumeAttachment", "DeviceClass",
	"ResourceSlice", "DeviceTaintRule", "ClusterRole", "ClusterRoleBinding",
}

// served returns the resources of a server.
func served(more []Resource) map[schema.GroupVersionResource]kind {
	kinds := map[schema.GroupVersionResource]kind{}
	object := reflect.TypeFor[metav1.Object]()
	for _, version := range usual {
		types := scheme.Scheme.KnownTypes(version)
		for name, of := range types {
			if _, listed := types[name+"List"]; listed && reflect.PointerTo(of).Implements(object) {
				resource, _ := meta.UnsafeGuessKindToResource(version.WithKind(name))
				kinds[resource] = kind{name: name, namespaced: !slices.Contains(clustered, name)}
			}
		}
	}
	for _, r := range more {
		kinds[r.GroupVersionResource] = r.asKind()
	}
	return kinds
}

func (r *Resource) asKind() kind { return kind{name: r.Kind, namespaced: r.Namespaced, rules: r.rules} }

// call is a request that names a resource.
type call struct {
	method          string
	resource        schema.GroupVersionResource
	kind            kind
	namespace, name string
	// sub is the subresource, "" for the object itself.
	sub   string
	query url.Values
	body  []byte
	dry   bool
	// media is the type of the body, done the end of the client's interest.
	media string
	done  *http.Request
}

func (c *call) key() string { return c.namespace + "/" + c.name }

func (c *call) notFound() error {
	return apierrors.NewNotFound(c.resource.GroupResource(), c.name)
}

// parse finds out what a request is for.
func (s *Server) parse(r *http.Request, body []byte) (*call, error) {
	c := &call{method: r.Method, query: r.URL.Query(), body: body, media: r.Header.Get("Content-Type"), done: r}
	c.dry = c.query.Get("dryRun") != ""
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var of schema.GroupVersion
	switch {
	case parts[0] == "api" && len(parts) > 2:
		of, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		of, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" && parts[2] != "finalize" {
		c.namespace, parts = parts[1], parts[2:]
	}
	parts = append(parts, "", "")
	c.resource, c.name, c.sub = of.WithResource(parts[0]), parts[1], parts[2]
	known, ok := s.kinds[c.resource]
	if !ok {
		return nil, apierrors.NewGenericServerResponse(http.StatusNotFound, r.Method, c.resource.GroupResource(), c.name, "the server could not find the requested resource", 0, true)
	}
	c.kind = known
	return c, nil
}

// discovery answers what the server has, and reports whether a path asks for that.
func (s *Server) discovery(path string) ([]byte, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var answer any
	switch {
	case path == "/version":
		answer = map[string]string{"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
	case path == "/api":
		answer = metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "/apis":
		answer = s.groups()
	case parts[0] == "api" && len(parts) == 2:
		answer = s.resources(schema.GroupVersion{Version: parts[1]})
	case parts[0] == "apis" && len(parts) == 3:
		answer = s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	default:
		return nil, false
	}
	if list, ok := answer.(metav1.APIResourceList); ok && len(list.APIResources) == 0 {
		return nil, false
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", answer, err)) // it has only texts
	}
	return raw, true
}

func (s *Server) groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	versions := map[string][]metav1.GroupVersionForDiscovery{}
	for r := range s.kinds {
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.GroupVersion().String(), Version: r.Version}
		if r.Group != "" && !slices.Contains(versions[r.Group], v) {
			versions[r.Group] = append(versions[r.Group], v)
		}
	}
	for group, of := range versions {
		slices.SortFunc(of, func(a, b metav1.GroupVersionForDiscovery) int { return strings.Compare(a.Version, b.Version) })
		list.Groups = append(list.Groups, metav1.APIGroup{Name: group, Versions: of, PreferredVersion: of[0]})
	}
	slices.SortFunc(list.Groups, func(a, b metav1.APIGroup) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func (s *Server) resources(of schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: of.String()}
	verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	for r, k := range s.kinds {
		if r.GroupVersion() == of {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.Resource, SingularName: strings.ToLower(k.name), Namespaced: k.namespaced, Kind: k.name, Verbs: verbs,
			})
		}
	}
	slices.SortFunc(list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	return list
}
