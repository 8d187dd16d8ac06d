package parking

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/spelling"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Declared is what the annotations of a workload allow.
type Declared struct {
	// Wakes says that the activator may bring the notebook back.
	Wakes bool
	// Idle is how long nothing works before the notebook is parked.
	Idle time.Duration
	// Port and Path are where the Jupyter server of the pod listens. The path has no slash at its end, so that of the root is empty.
	Port int
	Path string
	// Secret and Key name the token of the server, empty where it wants none.
	Secret, Key string
}

const (
	// LeastIdle is the least Declared.Idle. Less parks a notebook while its owner reads.
	LeastIdle = time.Minute
	// MostIdle is the largest Declared.Idle. More is no idle time that anybody waits for.
	MostIdle = 7 * 24 * time.Hour
	// usualIdle holds where the owner says nothing. It outlasts a lunch.
	usualIdle = time.Hour
	// usualPort is Jupyter's.
	usualPort = 8888
	// usualKey is the key of a token in its Secret.
	usualKey = "token"
	// maxPath bounds the base URL, in bytes.
	maxPath = 256
)

// pathForm is a path that needs no escape and has no dots that step up.
var pathForm = regexp.MustCompile(`^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$`)

// keys are the annotations that owners write.
var keys = []string{
	v1alpha1.AnnotationNotebook, v1alpha1.AnnotationNotebookIdle, v1alpha1.AnnotationNotebookPath, v1alpha1.AnnotationNotebookPort, v1alpha1.AnnotationNotebookToken,
}

// Read returns what the annotations of a workload allow, nil where they say nothing of notebooks. An error names the annotation, its value and
// the legal values.
func Read(annotations map[string]string) (*Declared, error) {
	said := false
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, v1alpha1.AnnotationNotebook) {
			continue
		}
		if said = true; !slices.Contains(keys, key) {
			return nil, unknown(key)
		}
	}
	if !said {
		return nil, nil
	}
	d := &Declared{Idle: usualIdle, Port: usualPort}
	if err := d.readMode(annotations); err != nil {
		return nil, err
	}
	for _, read := range []struct {
		key  string
		take func(raw string) *kube.FieldError
	}{
		{v1alpha1.AnnotationNotebookIdle, d.readIdle},
		{v1alpha1.AnnotationNotebookPort, d.readPort},
		{v1alpha1.AnnotationNotebookPath, d.readPath},
		{v1alpha1.AnnotationNotebookToken, d.readToken},
	} {
		if raw, there := annotations[read.key]; there {
			if err := read.take(raw); err != nil {
				err.NothingWaits = true
				return nil, err
			}
		}
	}
	return d, nil
}

// unknown says that nobody reads an annotation, and which one was probably meant.
func unknown(key string) error {
	e := &kube.FieldError{Field: kube.AnnotationPath(key), Legal: "nobody reads it on a workload, legal are " + strings.Join(keys, ", "), NothingWaits: true}
	if meant, found := spelling.Nearest(key, keys); found {
		e.Legal = "nobody reads it on a workload, the nearest legal one is " + meant
	}
	return e
}

func (d *Declared) readMode(annotations map[string]string) error {
	const legal = "legal is " + v1alpha1.NotebookPark + " or " + v1alpha1.NotebookCull
	raw, there := annotations[v1alpha1.AnnotationNotebook]
	d.Wakes = raw == v1alpha1.NotebookPark
	switch {
	case !there:
		return &kube.FieldError{Field: kube.AnnotationPath(v1alpha1.AnnotationNotebook), Legal: "it is missing beside others of notebooks, " + legal, NothingWaits: true}
	case !d.Wakes && raw != v1alpha1.NotebookCull:
		err := kube.Malformed(v1alpha1.AnnotationNotebook, raw, legal)
		err.NothingWaits = true
		return err
	}
	return nil
}

func (d *Declared) readIdle(raw string) *kube.FieldError {
	idle, err := time.ParseDuration(raw)
	if err != nil || idle < LeastIdle || idle > MostIdle {
		return kube.Malformed(v1alpha1.AnnotationNotebookIdle, raw, "legal is a duration from 1m to 168h, such as 90m")
	}
	d.Idle = idle
	return nil
}

func (d *Declared) readPort(raw string) *kube.FieldError {
	port, err := strconv.ParseUint(raw, 10, 16)
	if err != nil || port == 0 {
		return kube.Malformed(v1alpha1.AnnotationNotebookPort, raw, "legal is the number of a port, from 1 to 65535")
	}
	d.Port = int(port)
	return nil
}

func (d *Declared) readPath(raw string) *kube.FieldError {
	if raw == "" || len(raw) > maxPath || !pathForm.MatchString(raw) {
		return kube.Malformed(v1alpha1.AnnotationNotebookPath, raw,
			fmt.Sprintf("legal is a path such as /team-a/notebook, of letters, digits and ._~- with no part that begins with a dot, up to %d bytes", maxPath))
	}
	d.Path = strings.TrimSuffix(raw, "/")
	return nil
}

func (d *Declared) readToken(raw string) *kube.FieldError {
	secret, key, keyed := strings.Cut(raw, "/")
	if !keyed {
		key = usualKey
	}
	if len(validation.IsDNS1123Subdomain(secret)) > 0 || len(validation.IsConfigMapKey(key)) > 0 {
		return kube.Malformed(v1alpha1.AnnotationNotebookToken, raw, "legal is the name of a Secret in the namespace, or its name and a key such as jupyter/token")
	}
	d.Secret, d.Key = secret, key
	return nil
}
