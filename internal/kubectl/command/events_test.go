package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/must"
)

// told writes an event as the API server sends it.
func told(uid, component, reason, object string, count int) string {
	kind, name, _ := strings.Cut(object, "/")
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"events.k8s.io/v1","metadata":{"name":%q,"namespace":"lab","uid":%[1]q,"resourceVersion":"%d"},
		"eventTime":"2026-01-01T12:00:0%[2]d.000000Z","reportingController":%q,"type":"Normal","reason":%q,"note":"because of %[1]s","deprecatedCount":%[2]d,
		"regarding":{"kind":%[5]q,"namespace":"lab","name":%[6]q}}`, uid, count, component, reason, kind, name)
}

func listed(version int, all ...string) string {
	return fmt.Sprintf(`{"kind":"EventList","apiVersion":"events.k8s.io/v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, version, strings.Join(all, ","))
}

// eventServer answers lists by a function of their number, from 1, and watches by another one; without it they are forbidden. It returns a kubeconfig.
func eventServer(t *testing.T, list func(n int) string, watch func(n int) string) (config string) {
	t.Helper()
	lists, watches := 0, 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path != "/apis/events.k8s.io/v1/namespaces/lab/events" && r.URL.Path != "/apis/events.k8s.io/v1/events":
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you may not list %s"}`, r.URL.Path)
		case r.URL.Query().Get("watch") == "" && r.URL.Query().Get("sendInitialEvents") == "":
			lists++
			_, _ = io.WriteString(w, list(lists))
		case r.URL.Query().Get("sendInitialEvents") != "": // a list by a watch
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
		case watch == nil:
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"you cannot watch resource \"events\""}`)
		default:
			watches++
			_, _ = io.WriteString(w, watch(watches))
			w.(http.Flusher).Flush()
			if watches > 1 {
				<-r.Context().Done()
			}
		}
	}))
	t.Cleanup(s.Close)
	config = filepath.Join(t.TempDir(), "config")
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": s.URL}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": "secret"}}},
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u", "namespace": "lab"}}},
	})
	must.OK(t, err)
	must.OK(t, os.WriteFile(config, raw, 0o600))
	return config
}

func eventsOf(args ...string) (code int, out, errs string) {
	var o, e strings.Builder
	code = Execute(append([]string{"events"}, args...), Streams{Out: &o, Errs: &e, Env: func(string) string { return "" }})
	return code, o.String(), e.String()
}

// The command tells the events that Tandem's programs wrote, the newest last, and nothing of others.
func TestEvents(t *testing.T) {
	config := eventServer(t, func(int) string {
		return listed(9, told("b", "tandem-controller", "ElasticGrow", "Job/train", 2), told("x", "kubelet", "Pulled", "Pod/p", 1), told("a", "tandem-scheduler", "Preempted", "Pod/p", 1))
	}, nil)
	for _, x := range []struct{ args, want string }{
		{"-o wide", "2026-01-01T12:00:01Z  Normal   tandem-scheduler   Preempted  lab/Pod/p  because of a\n" +
			"2026-01-01T12:00:02Z  Normal   tandem-controller  ElasticGrow  lab/Job/train  because of b (2 times)\n"},
		{"-A job/train", "2026-01-01T12:00:02Z  Normal   tandem-controller  ElasticGrow  lab/Job/train  because of b (2 times)\n"},
		{"--reason Preempted -o yaml", "decisions:\n- at: \"2026-01-01T12:00:01Z\"\n  component: tandem-scheduler\n  count: 1\n  message: because of a\n  namespace: lab\n  object: Pod/p\n  reason: Preempted\n  type: Normal\n"},
		{"--since 1s -o json", "{\n  \"decisions\": []\n}\n"},
	} {
		code, out, errs := eventsOf(append(strings.Fields(x.args), "--kubeconfig", config)...)
		if diff := cmp.Diff(x.want, out); code != 0 || errs != "" || diff != "" {
			t.Errorf("%s: exit code %d, %q, %s", x.args, code, errs, diff)
		}
	}
	if code, out, errs := eventsOf("--type", "Warning", "--kubeconfig", config); code != 0 || out != "" || !strings.HasPrefix(errs, "no such decision is known in the namespace lab, ") {
		t.Errorf("without any: exit code %d, %q, %q", code, out, errs)
	}
	if code, _, errs := eventsOf("-n", "other", "--kubeconfig", config); code != Failed || !strings.Contains(errs, "you may not list /apis/events.k8s.io/v1/namespaces/other/events") {
		t.Errorf("without rights: exit code %d, %q", code, errs)
	}
}

func TestEventsMisused(t *testing.T) {
	for args, want := range map[string]string{
		"a b":            "events takes one object, has a b; see kubectl tandem events --help",
		"pod/":           `"pod/": legal are NAME and KIND/NAME, such as pod/train-0, job/train and gang/train`,
		"/p":             `"/p": legal are NAME and KIND/NAME, such as pod/train-0, job/train and gang/train`,
		"--type Error":   `--type: "Error", legal are Normal, Warning`,
		"--since -1s":    "--since: -1s, legal is 0 or more",
		"--snapshot x":   "--snapshot: events asks the cluster and reads no snapshot",
		"-f -o yaml":     "-o yaml: with --follow legal are json, a line for each, and wide",
		"--color orange": `--color: "orange", legal are auto, always, never`,
	} {
		if code, _, errs := eventsOf(strings.Fields(args)...); code != Misused || errs != "kubectl tandem: "+want+"\n" {
			t.Errorf("%s: exit code %d, %q", args, code, errs)
		}
	}
}

// After a lost connection the command lists anew: it tells what came meanwhile, and nothing twice.
func TestEventsFollow(t *testing.T) {
	a, b, c := told("a", "tandem-scheduler", "Preempted", "Pod/p", 1), told("b", "tandem-scheduler", "Preempted", "Pod/q", 1), told("c", "tandem-controller", "ElasticGrow", "Job/j", 1)
	again := told("a", "tandem-scheduler", "Preempted", "Pod/p", 2)
	config := eventServer(t, func(n int) string {
		if n <= 2 { // the command's, then the informer's
			return listed(1, a)
		}
		return listed(5, again, b, c)
	}, func(n int) string {
		if n == 1 {
			return `{"type":"ADDED","object":` + b + `}` + "\n" +
				`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}}` + "\n"
		}
		return ""
	})
	ctx, stop := context.WithCancel(t.Context())
	read, write := io.Pipe()
	var errs strings.Builder
	o := &options{streams: Streams{Out: write, Errs: &errs, Env: func(string) string { return "" }}, kubeconfig: config, colour: "auto"}
	o.scheduler.Name, o.scheduler.Namespace, o.scheduler.Port = "tandem-scheduler", "tandem-system", 10261
	e := &eventful{options: o, follow: true, as: jsonForm}
	ended := make(chan error, 1)
	go func() { ended <- e.run(ctx, nil) }()
	var got []string
	for lines := bufio.NewScanner(read); len(got) < 4 && lines.Scan(); {
		var d struct {
			Object string
			Count  int
		}
		must.OK(t, json.Unmarshal(lines.Bytes(), &d))
		got = append(got, fmt.Sprintf("%s %d", d.Object, d.Count))
	}
	stop()
	_ = read.Close()
	if err := <-ended; err != nil || errs.String() != "" {
		t.Errorf("%v, %q", err, errs.String())
	}
	if got[0] != "Pod/p 1" || got[1] != "Pod/q 1" || !strings.Contains(strings.Join(got[2:], " "), "Pod/p 2") || !strings.Contains(strings.Join(got[2:], " "), "Job/j 1") {
		t.Errorf("told %v", got)
	}
}

// A caller who may list events and not watch them gets an answer, and the right that is missing, once.
func TestEventsFollowWithoutRight(t *testing.T) {
	config := eventServer(t, func(int) string { return listed(1, told("a", "tandem-scheduler", "Preempted", "Pod/p", 1)) }, nil)
	code, out, errs := eventsOf("-f", "-o", "wide", "--kubeconfig", config)
	if code != Failed || strings.Count(out, "because of a") != 1 || strings.Count(errs, "\n") != 1 ||
		!strings.Contains(errs, `cannot watch resource "events"; --follow needs the rights to list and to watch events in events.k8s.io`) {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
}

// Reasons are completed after each comma, and each once.
func TestCompleteReasons(t *testing.T) {
	var out strings.Builder
	code := Execute([]string{"__complete", "events", "--reason", "Preempted,"}, Streams{Out: &out, Errs: io.Discard, Env: func(string) string { return "" }})
	if code != 0 || !strings.Contains(out.String(), "Preempted,GangPlaced\tall members of a gang that must run have places\n") || strings.Contains(out.String(), "Preempted,Preempted\t") {
		t.Errorf("exit code %d, %q", code, out.String())
	}
}
