package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
	"github.com/tandem-gpu/tandem/test/must"
)

// apiServer serves a cluster with nothing in it, and refuses what is named. It returns a kubeconfig and the paths that were asked for.
func apiServer(t *testing.T, refused string) (config string, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		answer, code := `{"items":[]}`, http.StatusOK
		switch {
		case refused != "" && strings.HasSuffix(r.URL.Path, refused):
			answer, code = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, http.StatusForbidden
		case r.URL.Path == "/version":
			answer = `{"gitVersion":"v1.37.2"}`
		case r.URL.Path == "/api":
			answer = `{"kind":"APIVersions","versions":["v1"]}`
		case r.URL.Path == "/apis":
			answer = `{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`
		case strings.HasSuffix(r.URL.Path, "/leases/tandem-scheduler"), strings.HasSuffix(r.URL.Path, "/gpunodes"), strings.HasSuffix(r.URL.Path, "/gpunodes/n1"):
			answer, code = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, answer)
	}))
	t.Cleanup(s.Close)
	return configFor(t, s.URL), asked
}

// configFor writes the kubeconfig of a server.
func configFor(t *testing.T, url string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config")
	raw := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":%q}}],
		"users":[{"name":"u","user":{"token":"secret"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`, url)
	must.OK(t, os.WriteFile(config, []byte(raw), 0o600))
	return config
}

// doctor runs the command.
func doctor(args ...string) (code int, out, errs string) {
	var o, e strings.Builder
	code = Execute(append([]string{"doctor"}, args...), Streams{Out: &o, Errs: &e, Env: func(string) string { return "" }})
	return code, o.String(), e.String()
}

// The command asks the API server by reads alone, writes what it found, and ends with the code for errors.
func TestDoctor(t *testing.T) {
	config, asked := apiServer(t, "")
	code, out, errs := doctor("--kubeconfig", config)
	if code != Broken || errs != "" || !strings.HasPrefix(out, "1 error, 0 warnings, 0 notes; 4 checks found nothing, ") || !strings.Contains(out, "\nerror NotInstalled: ") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	for _, a := range *asked {
		if !strings.HasPrefix(a, "GET ") {
			t.Errorf("it asked %s", a)
		}
	}
	if !slices.Contains(*asked, "GET /apis/apps/v1/namespaces/tandem-system/daemonsets") {
		t.Errorf("it asked %v", *asked)
	}
	code, out, _ = doctor("--kubeconfig", config, "--scheduler-namespace", "gpu-system", "-o", "json")
	var r checks.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != Broken || len(r.Findings) != 1 || r.Findings[0].Object != "Namespace/gpu-system" {
		t.Errorf("exit code %d, %v, %s", code, err, out)
	}
}

// A source that may not be read is a warning, by which a run in CI fails unless it is told otherwise.
func TestDoctorWithoutRights(t *testing.T) {
	config, _ := apiServer(t, "/daemonsets")
	for failOn, want := range map[string]int{"warning": Broken, "error": Broken} { // policies are missing too
		if code, out, _ := doctor("--kubeconfig", config, "--fail-on", failOn); code != want || !strings.Contains(out, "\nwarning NotChecked: ") {
			t.Errorf("--fail-on %s: exit code %d, %s", failOn, code, out)
		}
	}
}

// An API server that does not answer, or answers with a failure, is no cluster with findings.
func TestDoctorFails(t *testing.T) {
	config, _ := apiServer(t, "")
	raw, err := os.ReadFile(config)
	must.OK(t, err)
	must.OK(t, os.WriteFile(config, []byte(strings.Replace(string(raw), "http://127.0.0.1:", "http://127.0.0.1:1/", 1)), 0o600))
	if code, out, errs := doctor("--kubeconfig", config); code != Failed || out != "" || !strings.Contains(errs, "read server: ") {
		t.Errorf("exit code %d, %q, %q", code, out, errs)
	}
	for want, args := range map[string][]string{
		`--fail-on: "note", legal are error, warning`: {"--fail-on", "note"},
		"doctor asks the cluster":                     {"--snapshot", "-"},
		`has the argument "x"`:                        {"x"},
	} {
		if code, out, errs := doctor(append(args, "--kubeconfig", config)...); code != Misused || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}

// report has a finding of each of some severities.
func report(severities ...checks.Severity) *checks.Report {
	r := &checks.Report{Findings: []checks.Finding{}, Passed: []string{"Other"}, NotDone: []string{"More"}}
	for _, s := range severities {
		r.Findings = append(r.Findings, checks.Finding{
			Check: "Check" + string(s), Severity: s, Object: "Pod/a/b", What: "it says \x1b[2J", Why: "Because.", Fix: "mend it", Page: "docs/x.md",
		})
	}
	return r
}

// The exit code goes by the gravest finding and by --fail-on.
func TestExitCodeOfFindings(t *testing.T) {
	for _, test := range []struct {
		r      *checks.Report
		failOn checks.Severity
		want   int
	}{
		{report(), checks.Warning, 0},
		{report(checks.Note), checks.Warning, 0},
		{report(checks.Warning, checks.Note), checks.Warning, Warned},
		{report(checks.Warning), checks.Error, 0},
		{report(checks.Error, checks.Warning), checks.Warning, Broken},
		{report(checks.Error), checks.Error, Broken},
	} {
		got := 0
		if v := (*verdict)(nil); errors.As(judge(test.r, test.failOn), &v) {
			got = v.code
		}
		if got != test.want {
			t.Errorf("%v with --fail-on %s: exit code %d, want %d", test.r.Worst(), test.failOn, got, test.want)
		}
	}
}

// The text groups findings by check, has colours where they are wanted, and nothing that a terminal obeys.
func TestReport(t *testing.T) {
	written := func(colour string, as form) string {
		var b strings.Builder
		o := &options{streams: Streams{Out: &b}, colour: colour}
		r := report(checks.Error, checks.Error, checks.Note)
		must.OK(t, o.writeReport(r, as))
		return b.String()
	}
	want := "2 errors, 0 warnings, 1 note; 1 check found nothing, 1 not done\n\n" +
		"error Checkerror: Because.\n  see docs/x.md\n" +
		"  Pod/a/b: it says  [2J\n    fix: mend it\n  Pod/a/b: it says  [2J\n    fix: mend it\n\n" +
		"note Checknote: Because.\n  see docs/x.md\n  Pod/a/b: it says  [2J\n    fix: mend it\n"
	if got := written("never", text); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := written("never", wide); got != want+"\nfound nothing: Other\n\nnot done: More\n" {
		t.Errorf("got\n%s", got)
	}
	if got := written("always", text); !strings.Contains(got, "\x1b[31merror\x1b[0m Checkerror") || strings.Contains(got, "\x1b[2J") {
		t.Errorf("got %q", got)
	}
	if got := written("always", yamlForm); !strings.Contains(got, "severity: note\n") || strings.Contains(got, "\x1b[31m") {
		t.Errorf("got\n%s", got)
	}
}
