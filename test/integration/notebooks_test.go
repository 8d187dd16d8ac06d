package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestNotebooks has the controller and the activator, each under its account, park and wake a real Jupyter server.
func TestNotebooks(t *testing.T) {
	if os.Getenv("TANDEM_NOTEBOOKS") != "1" {
		t.Skip("needs Debian's jupyter-server and python3-ipykernel, and minutes: make test-notebooks runs it (TANDEM_NOTEBOOKS=1)")
	}
	c := newFleetCluster(t)
	s := startNotebook(t, c.gangCluster)
	c.startController(t, "--features=notebooks", "--notebooks-interval=1s", "--notebooks-notice=10s")
	s.startActivator(t)

	s.poll(t, "the notebook answers through the activator", func() (bool, string) {
		status, text := s.ask(t, http.MethodGet, "/api/kernels")
		return status == http.StatusOK, text
	})
	kernel := s.startKernel(t)
	s.busyCell(t, kernel, 75*time.Second)
	if set := s.set(t); *set.Spec.Replicas != 1 || s.told(t, "NotebookIdle") != "" {
		t.Fatalf("a notebook that works is parked, or its owner is warned: size %d, %s", *set.Spec.Replicas, s.told(t, "NotebookIdle"))
	}

	began := time.Now()
	s.poll(t, "the pod shows since when it is idle", func() (bool, string) {
		p, err := s.admin.CoreV1().Pods(s.namespace).Get(t.Context(), podName, metav1.GetOptions{})
		return err == nil && p.Annotations[v1alpha1.AnnotationNotebookIdleSince] != "", fmt.Sprint(err)
	})
	s.poll(t, "the owner is warned", func() (bool, string) { return s.told(t, "NotebookIdle") != "", "" })
	warned := time.Now()
	s.poll(t, "the notebook is parked", func() (bool, string) { return *s.set(t).Spec.Replicas == 0 && s.told(t, "NotebookParked") != "", "" })
	t.Logf("warned %v after the cell ended, parked %v later", warned.Sub(began).Round(time.Second), time.Since(warned).Round(time.Second))

	s.poll(t, "the Jupyter server has ended", func() (bool, string) { return !s.serves(), "it serves" })
	if status, text := s.ask(t, http.MethodGet, "/api/kernels"); status != http.StatusServiceUnavailable || !strings.Contains(text, "parked") || *s.set(t).Spec.Replicas != 0 {
		t.Errorf("a poll of an open tab: %d %s, size %d; want 503 and nothing woken", status, text, *s.set(t).Spec.Replicas)
	}
	began = time.Now()
	status, text := s.ask(t, http.MethodGet, "/login")
	if status != http.StatusOK || !strings.Contains(text, "Jupyter") {
		t.Fatalf("the first request for a parked notebook: %d %.300s", status, text)
	}
	t.Logf("the first request for the parked notebook had its answer after %v", time.Since(began).Round(10*time.Millisecond))
	s.poll(t, "an event tells that the notebook was woken", func() (bool, string) { return s.told(t, "NotebookWoken") != "", "" })
	if size := *s.set(t).Spec.Replicas; size != 1 {
		t.Errorf("the size of the woken notebook is %d", size)
	}
	s.startKernel(t) // it works as before, without its kernels
}

const (
	notebookName  = "nb"
	podName       = "nb-0"
	notebookToken = "a-token"
)

// notebook is a StatefulSet whose pod is a Jupyter server on loopback, while its size is 1: the test is Kubernetes' controller and kubelet for it.
type notebook struct {
	*gangCluster
	namespace string
	port      int
	// address is that of the activator.
	address string
	// home has the files of the server.
	home string
	mu   sync.Mutex
	// server is the process, nil while the size is 0.
	server *exec.Cmd
}

func startNotebook(t *testing.T, c *gangCluster) *notebook {
	t.Helper()
	s := &notebook{gangCluster: c, namespace: "team-a", port: freePort(t), home: t.TempDir()}
	ctx := t.Context()
	if _, err := c.admin.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.allowToken(t)
	labels := map[string]string{"app": notebookName}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: notebookName, Annotations: map[string]string{
			v1alpha1.AnnotationNotebook: v1alpha1.NotebookPark, v1alpha1.AnnotationNotebookIdle: "1m", v1alpha1.AnnotationNotebookPort: fmt.Sprint(s.port),
			v1alpha1.AnnotationNotebookPath: s.base(), v1alpha1.AnnotationNotebookToken: "jupyter/token",
		}},
		Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), ServiceName: notebookName, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: v1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "jupyter", Image: "jupyter"}}},
		}},
	}
	if _, err := c.admin.AppsV1().StatefulSets(s.namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	return s
}

// allowToken makes the Secret with the token, and allows the controller to read it.
func (s *notebook) allowToken(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	_, err := s.admin.CoreV1().Secrets(s.namespace).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "jupyter"}, StringData: map[string]string{"token": notebookToken}}, metav1.CreateOptions{})
	must.OK(t, err)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "jupyter-token"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{"jupyter"}, Verbs: []string{"get"}}}}
	if _, err := s.admin.RbacV1().Roles(s.namespace).Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "jupyter-token"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "jupyter-token"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "tandem-controller", Namespace: "tandem-system"}},
	}
	if _, err := s.admin.RbacV1().RoleBindings(s.namespace).Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// base is the base URL of the server, under which the activator has it too.
func (s *notebook) base() string { return "/" + s.namespace + "/" + notebookName }

func freePort(t *testing.T) int {
	t.Helper()
	ports, err := sandbox.FreePorts(1)
	must.OK(t, err)
	return ports[0]
}

// run starts and ends the server and its pod as the size of the StatefulSet says.
func (s *notebook) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if set, err := s.admin.AppsV1().StatefulSets(s.namespace).Get(ctx, notebookName, metav1.GetOptions{}); err == nil {
				if err := s.follow(ctx, set); err != nil && ctx.Err() == nil {
					t.Log(err)
				}
			}
			time.Sleep(100 * time.Millisecond) // between two looks at the size; the test itself waits for conditions
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		s.end()
	})
}

func (s *notebook) follow(ctx context.Context, set *appsv1.StatefulSet) error {
	pods := s.admin.CoreV1().Pods(s.namespace)
	if *set.Spec.Replicas == 0 {
		s.end()
		if err := pods.Delete(ctx, podName, *metav1.NewDeleteOptions(0)); err != nil && !strings.Contains(err.Error(), "not found") {
			return err
		}
		return nil
	}
	if err := s.begin(); err != nil {
		return err
	}
	p, err := pods.Get(ctx, podName, metav1.GetOptions{})
	if err != nil {
		p = &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: podName, Labels: set.Spec.Template.Labels, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}},
			Spec:       set.Spec.Template.Spec,
		}
		if p, err = pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if ready := s.serves(); ready && p.Status.PodIP == "" {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = v1.PodRunning, "127.0.0.1", []v1.PodIP{{IP: "127.0.0.1"}}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		_, err = pods.UpdateStatus(ctx, p, metav1.UpdateOptions{})
		return err
	}
	return nil
}

// begin starts the server if it does not run.
func (s *notebook) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		return nil
	}
	server := exec.Command("/usr/bin/python3", "-m", "jupyter_server", "--allow-root", "--no-browser", "--ip=127.0.0.1", fmt.Sprintf("--port=%d", s.port), "--ServerApp.port_retries=0",
		"--ServerApp.token="+notebookToken, "--ServerApp.base_url="+s.base(), "--ServerApp.root_dir="+s.home)
	server.Env = append(os.Environ(), "HOME="+s.home, "JUPYTER_RUNTIME_DIR="+filepath.Join(s.home, "run"), "IPYTHONDIR="+filepath.Join(s.home, "ipython"))
	log, err := os.OpenFile(filepath.Join(s.home, "server.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return fmt.Errorf("start Debian's jupyter-server (apt-get install jupyter-server python3-ipykernel): %w", err)
	}
	s.server = server
	return nil
}

// end ends the server: on SIGTERM it ends its kernels first.
func (s *notebook) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return
	}
	_ = s.server.Process.Signal(os.Interrupt)
	kill := time.AfterFunc(10*time.Second, func() { _ = s.server.Process.Kill() })
	_ = s.server.Process.Signal(os.Interrupt) // the second one needs no answer to "Shutdown this server?"
	_ = s.server.Wait()
	kill.Stop()
	s.server = nil
}

// serves reports whether the server answers.
func (s *notebook) serves() bool {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s/api", s.port, s.base()))
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// startActivator starts the activator under its account.
func (s *notebook) startActivator(t *testing.T) {
	t.Helper()
	binary := sandbox.ProgramForTest(t, "activator")
	kubeconfig, err := s.plane.ServiceAccount(life(t), "tandem-system", "tandem-activator")
	must.OK(t, err)
	s.address = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	process, err := s.plane.Processes().Start("activator", exec.Command(binary, "--kubeconfig="+kubeconfig, "--bind-address="+s.address, "--probe-bind-address=127.0.0.1:0"))
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the activator said:\n%s", process.Tail(40))
			log, _ := os.ReadFile(filepath.Join(s.home, "server.log"))
			t.Logf("the Jupyter server said:\n%s", log)
		}
	})
}

// ask sends a request to the notebook through the activator.
func (s *notebook) ask(t *testing.T, method, path string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+s.base()+path, nil)
	must.OK(t, err)
	r.Header.Set("Authorization", "token "+notebookToken)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(body)
}

// startKernel starts a kernel and returns its name.
func (s *notebook) startKernel(t *testing.T) string {
	t.Helper()
	var kernel struct{ ID string }
	status, text := s.ask(t, http.MethodPost, "/api/kernels")
	if err := json.Unmarshal([]byte(text), &kernel); err != nil || status != http.StatusCreated || kernel.ID == "" {
		t.Fatalf("start a kernel: %d %s", status, text)
	}
	return kernel.ID
}

// busyCell runs a cell that says nothing for a time, through the activator's WebSockets, and waits until it has ended.
func (s *notebook) busyCell(t *testing.T, kernel string, takes time.Duration) {
	t.Helper()
	url := fmt.Sprintf("ws://%s%s/api/kernels/%s/channels?token=%s", s.address, s.base(), kernel, notebookToken)
	conn, err := websocket.Dial(url, "", "http://"+s.address)
	must.OK(t, err)
	defer func() { _ = conn.Close() }() // the test has what it wants
	const id = "the-cell"
	request := map[string]any{
		"channel": "shell", "parent_header": map[string]any{}, "metadata": map[string]any{}, "buffers": []any{},
		"header":  map[string]any{"msg_id": id, "msg_type": "execute_request", "username": "test", "session": "test", "version": "5.3", "date": time.Now().UTC().Format(time.RFC3339)},
		"content": map[string]any{"code": fmt.Sprintf("import time; time.sleep(%d)", int(takes.Seconds())), "silent": false, "store_history": false, "allow_stdin": false},
	}
	began := time.Now()
	must.OK(t, websocket.JSON.Send(conn, request))
	must.OK(t, conn.SetReadDeadline(began.Add(takes+2*time.Minute)))
	for {
		var reply struct {
			Header struct {
				Type string `json:"msg_type"`
			}
			Parent struct {
				ID string `json:"msg_id"`
			} `json:"parent_header"`
			Content struct{ Status string }
		}
		if err := websocket.JSON.Receive(conn, &reply); err != nil {
			t.Fatalf("wait for the end of the cell: %v", err)
		}
		if reply.Header.Type == "execute_reply" && reply.Parent.ID == id {
			if took := time.Since(began); reply.Content.Status != "ok" || took < takes {
				t.Fatalf("the cell ended %q after %v", reply.Content.Status, took)
			}
			return
		}
	}
}

func (s *notebook) set(t *testing.T) *appsv1.StatefulSet {
	t.Helper()
	set, err := s.admin.AppsV1().StatefulSets(s.namespace).Get(t.Context(), notebookName, metav1.GetOptions{})
	must.OK(t, err)
	return set
}

// told returns the note of an event about the notebook, "" for none.
func (s *notebook) told(t *testing.T, reason string) string {
	t.Helper()
	list, err := s.admin.EventsV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{})
	must.OK(t, err)
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == reason && e.Regarding.Kind == "StatefulSet" && e.Regarding.Name == notebookName {
			return e.Note
		}
	}
	return ""
}
