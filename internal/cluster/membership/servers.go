package membership

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// Wish is what an elastic gang that states a rate wants.
type Wish struct {
	// Rate of all members together.
	Rate float64
	// Servers run its parameter servers, nil for a gang without.
	Servers *Servers
}

// Servers are the parameter servers of a gang: the pods of an object in its namespace.
type Servers struct {
	// Kind is StatefulSet or Deployment, Name that of the object.
	Kind, Name string
	// Sizes are the legal numbers of servers, ascending.
	Sizes []int
}

// serverKinds are the kinds of objects that run servers, by how the annotation writes them.
var serverKinds = map[string]string{"statefulset": "StatefulSet", "deployment": "Deployment"}

const (
	legalElasticRate = "it must be a decimal above 0, at most 1000000000000, with up to six decimals and without a sign or unit, for example 500 or 0.5"
	legalServers     = "it must be statefulset/NAME or deployment/NAME, a space, and the legal numbers of servers from 1 to 256 as a range or an ascending " +
		"list, for example statefulset/ps 1-4 or deployment/ps 1,2,4"
)

// WishOf returns what an elastic gang wants by its annotations, nil for one that states no rate. The error is a
// *FieldError.
func WishOf(annotations map[string]string) (*Wish, error) {
	raw, states := annotations[v1alpha1.AnnotationElasticRate]
	servers, names := annotations[v1alpha1.AnnotationElasticServers]
	if !states {
		if names {
			return nil, kube.Malformed(v1alpha1.AnnotationElasticServers, servers,
				fmt.Sprintf("it is for a gang that states a rate by the annotation %s: add that, or remove this one", v1alpha1.AnnotationElasticRate))
		}
		return nil, nil
	}
	rate, legal := kube.Decimal(raw)
	if !legal || rate < 1 {
		return nil, kube.Malformed(v1alpha1.AnnotationElasticRate, raw, legalElasticRate)
	}
	w := &Wish{Rate: float64(rate) / 1e6}
	if names {
		if w.Servers = parseServers(servers); w.Servers == nil {
			return nil, kube.Malformed(v1alpha1.AnnotationElasticServers, servers, legalServers)
		}
	}
	return w, nil
}

// parseServers reads the object and the numbers of servers, nil where they are not legal.
func parseServers(raw string) *Servers {
	object, numbers, _ := strings.Cut(raw, " ")
	kind, name, _ := strings.Cut(object, "/")
	sizes, legal := elastic.ParseSizes(numbers, elastic.MaxServers)
	if !legal || serverKinds[kind] == "" || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil
	}
	return &Servers{Kind: serverKinds[kind], Name: name, Sizes: sizes}
}
