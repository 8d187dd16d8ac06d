package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// api is the least API server for the agent and the stand-in for the kubelet: it stores objects, and sends their
// changes. There are no checks. A real one does not fit into the folder for a machine with a GPU.
type api struct {
	server *http.Server
	url    string

	mu       sync.Mutex
	version  int
	objects  map[string]*unstructured.Unstructured // by path
	watchers map[chan event]string                 // the path of the collection
}

type event struct {
	Type   string                     `json:"type"`
	Object *unstructured.Unstructured `json:"object"`
}

func newAPI() (*api, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := &api{objects: map[string]*unstructured.Unstructured{}, watchers: map[chan event]string{}, url: "http://" + listener.Addr().String()}
	a.server = &http.Server{Handler: a}
	go func() { _ = a.server.Serve(listener) }() // ends with Close
	return a, nil
}

func (a *api) close() { _ = a.server.Close() }

// kubeconfig writes a file that leads here.
func (a *api) kubeconfig(dir string) (string, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters["gpu"] = &clientcmdapi.Cluster{Server: a.url}
	c.AuthInfos["gpu"] = clientcmdapi.NewAuthInfo()
	c.Contexts["gpu"] = &clientcmdapi.Context{Cluster: "gpu", AuthInfo: "gpu"}
	c.CurrentContext = "gpu"
	path := filepath.Join(dir, "kubeconfig")
	return path, clientcmd.WriteToFile(*c, path)
}

// collection returns the collection of a path and the object's name; "" for the collection itself. Namespaced objects are in the
// collection of all namespaces too.
func collection(path string) (of, name string, status bool) {
	words := strings.Split(strings.Trim(path, "/"), "/")
	at := 2 // api/v1
	if words[0] == "apis" {
		at = 3
	}
	if len(words) > at+2 && words[at] == "namespaces" {
		words = slices.Delete(words, at, at+2)
	}
	if len(words) > at+2 && words[at+2] == "status" {
		return strings.Join(words[:at+1], "/"), words[at+1], true
	}
	if len(words) > at+1 {
		return strings.Join(words[:at+1], "/"), words[at+1], false
	}
	return strings.Join(words, "/"), "", false
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	of, name, status := collection(r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	q := r.URL.Query()
	switch {
	case q.Get("watch") != "" && q.Get("sendInitialEvents") != "":
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "no list by a watch here")
	case q.Get("watch") != "":
		a.watch(w, r, of)
	case r.Method == http.MethodGet && name == "":
		a.list(w, of)
	case r.Method == http.MethodGet:
		a.answer(w, of+"/"+name)
	case r.Method == http.MethodDelete:
		a.remove(w, of+"/"+name)
	default:
		a.write(w, r, of, name, status)
	}
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "message": message,
	})
}

func (a *api) answer(w http.ResponseWriter, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[path]
	if o == nil {
		refuse(w, http.StatusNotFound, "NotFound", path+" not found")
		return
	}
	_ = json.NewEncoder(w).Encode(o)
}

func (a *api) list(w http.ResponseWriter, of string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []*unstructured.Unstructured{}
	for path, o := range a.objects {
		if strings.HasPrefix(path, of+"/") {
			items = append(items, o)
		}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": fmt.Sprint(a.version)}, "items": items,
	})
}

func (a *api) write(w http.ResponseWriter, r *http.Request, of, name string, status bool) {
	o := &unstructured.Unstructured{}
	if err := json.NewDecoder(r.Body).Decode(&o.Object); err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	if name == "" {
		name = o.GetName()
	}
	path := of + "/" + name
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.objects[path]
	switch {
	case strings.HasSuffix(of, "selfsubjectreviews"), strings.HasSuffix(of, "events"):
		_ = json.NewEncoder(w).Encode(o)
		return
	case r.Method == http.MethodPost && old != nil:
		refuse(w, http.StatusConflict, "AlreadyExists", path+" exists")
		return
	case r.Method != http.MethodPost && old == nil:
		refuse(w, http.StatusNotFound, "NotFound", path+" not found")
		return
	case status:
		changed := old.DeepCopy()
		changed.Object["status"] = o.Object["status"]
		o = changed
	}
	a.put(path, o)
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusCreated)
	}
	_ = json.NewEncoder(w).Encode(o)
}

// add stores an object like another client's.
func (a *api) add(path string, object any) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.put(path, &unstructured.Unstructured{Object: raw})
	return nil
}

// put stores an object and sends the change. The caller holds the mutex.
func (a *api) put(path string, o *unstructured.Unstructured) {
	a.version++
	o.SetResourceVersion(fmt.Sprint(a.version))
	kind := "MODIFIED"
	if a.objects[path] == nil {
		kind = "ADDED"
		if o.GetUID() == "" {
			o.SetUID(uuid.NewUUID())
		}
	}
	a.objects[path] = o
	a.tell(path, event{Type: kind, Object: o.DeepCopy()})
}

// remove deletes a pod as a kubelet confirms it: at once.
func (a *api) remove(w http.ResponseWriter, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.objects[path]
	if o == nil {
		refuse(w, http.StatusNotFound, "NotFound", path+" not found")
		return
	}
	delete(a.objects, path)
	a.version++
	o.SetResourceVersion(fmt.Sprint(a.version))
	a.tell(path, event{Type: "DELETED", Object: o})
	_ = json.NewEncoder(w).Encode(o)
}

// tell sends a change to the watchers. The caller holds the mutex.
func (a *api) tell(path string, e event) {
	for c, of := range a.watchers {
		if strings.HasPrefix(path, of+"/") {
			c <- e
		}
	}
}

func (a *api) watch(w http.ResponseWriter, r *http.Request, of string) {
	c := make(chan event, 1000) // more changes than a run makes
	a.mu.Lock()
	a.watchers[c] = of
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watchers, c)
	}()
	flush := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	_ = flush.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-c:
			if json.NewEncoder(w).Encode(e) != nil || flush.Flush() != nil {
				return
			}
		}
	}
}

// read returns a file of the process's, "" where there is none.
func read(elements ...string) string {
	raw, err := os.ReadFile(filepath.Join(elements...))
	if err != nil {
		return ""
	}
	return string(raw)
}
