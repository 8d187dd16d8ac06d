package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/gpumap/recording"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// heard is what a command has written. The command writes while the test reads.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write keeps what is written.
func (s *heard) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *heard) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute { // only a hang takes so long
			t.Fatalf("waited for %s", what)
		}
	}
}

// written returns the JSON of a snapshot with a node, of a second after 2026 began.
func written(t *testing.T, node string, second int) []byte {
	t.Helper()
	raw, err := snapshotjson.Write(&snapshot.Snapshot{
		Source: snapshot.FromScheduler, At: time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC), Nodes: []snapshot.Node{{Name: node}},
	})
	must.OK(t, err)
	return raw
}

// get returns the code and the body of an answer.
func get(t *testing.T, address string) (code int, body string) {
	t.Helper()
	answer, err := http.Get(address)
	must.OK(t, err)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	must.OK(t, err)
	return answer.StatusCode, string(raw)
}

// The page is at the address that the command prints, shows the snapshot, and is nowhere else. The command ends with its context.
func TestUI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "now.json")
	must.OK(t, os.WriteFile(file, written(t, "n1", 0), 0o600))
	out, errs := &heard{}, &heard{}
	u := &ui{interval: time.Second, open: true, options: &options{file: file, colour: "auto", streams: Streams{Out: out, Errs: errs, Env: os.Getenv}}}
	u.scheduler.Port = 1
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.run(ctx) }()
	var address []string
	until(t, "the address", func() bool {
		address = regexp.MustCompile(`(http://127\.0\.0\.1:[0-9]+/)([0-9a-f]{32}/) `).FindStringSubmatch(out.String())
		return address != nil
	})
	for path, want := range map[string]string{
		"": "<!doctype html>", "map.js": "fetch(", "moments": `"title":"snapshot ` + file + `","live":false,"seconds":[1767225600]`, "picture?at=1767225600": `"n1"`,
	} {
		if code, body := get(t, address[1]+address[2]+path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("/%s: %d, %.200s; want %q in it", path, code, body, want)
		}
	}
	for _, path := range []string{"", "moments", "picture?at=1767225600", strings.Repeat("0", 32) + "/", strings.TrimSuffix(address[2], "/")} {
		if code, body := get(t, address[1]+path); code != http.StatusNotFound || !strings.Contains(body, "kubectl tandem ui has printed") {
			t.Errorf("/%s: %d, %.200s; want it not found", path, code, body)
		}
	}
	stop()
	if err := <-ended; err != nil || errs.String() != "" {
		t.Errorf("%v, %q", err, errs)
	}
}

// The map follows the scheduler. When no answer comes, the command says so once, and once that answers come again.
func TestUIFollows(t *testing.T) {
	var mu sync.Mutex
	answer := written(t, "a", 0)
	scheduler := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer secret" || answer == nil {
			http.Error(w, "another one leads", http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(answer)
	}))
	defer scheduler.Close()
	answers := func(raw []byte) {
		mu.Lock()
		defer mu.Unlock()
		answer = raw
	}
	config := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(config, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"prod","clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],
		"users":[{"name":"u","user":{"token":"secret"}}],"contexts":[{"name":"prod","context":{"cluster":"c","user":"u"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	errs := &heard{}
	u := &ui{interval: time.Millisecond, options: &options{kubeconfig: config, streams: Streams{Errs: errs}}}
	u.scheduler.Address, u.scheduler.Insecure = scheduler.URL, true
	if got := u.title(); got != "cluster prod" {
		t.Errorf("the title is %q", got)
	}
	kept := recording.New("", true, 1<<20)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { u.follow(ctx, kept); close(ended) }()
	moments := func() string {
		m, err := kept.Moments(ctx)
		must.OK(t, err)
		return fmt.Sprint(len(m.Seconds))
	}
	until(t, "the first snapshot", func() bool { return moments() == "1" })
	answers(nil)
	until(t, "the word that no answer comes", func() bool { return strings.Contains(errs.String(), "\n") })
	answers(written(t, "b", 10))
	until(t, "the second snapshot", func() bool { return moments() == "2" })
	until(t, "the word that answers come again", func() bool { return strings.Count(errs.String(), "\n") == 2 })
	stop()
	<-ended
	lines := strings.Split(errs.String(), "\n")
	if !strings.Contains(lines[0], "the map stays as it is: get snapshot") || !strings.Contains(lines[0], "another one leads") || !strings.HasSuffix(lines[1], "follows the scheduler again") {
		t.Errorf("the command said %q", lines)
	}
}

// Flags that are not legal end the command before it asks anybody.
func TestUIRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--interval: 10ms, legal is 1s or more": {"--interval", "10ms"},
		"--port: 70000, legal are 0 to 65535":   {"--port", "70000"},
		`ui takes flags only, has the argument`: {"now.json"},
	} {
		errs := &heard{}
		code := Execute(append([]string{"ui", "--kubeconfig", "/nonexistent/config"}, args...), Streams{Out: io.Discard, Errs: errs, Env: os.Getenv})
		if code != Misused || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit code %d, %q; want %q", args, code, errs, want)
		}
	}
}
