package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/test/must"
)

// line passes on what is written, write by write.
type line chan string

func (l line) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

// TestServe: run --serve prints the table, tells the address, and serves the run that the flags name until it is ended.
func TestServe(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var out bytes.Buffer
	errs, ended := make(line, 100), make(chan error, 1)
	c := simulator()
	c.SetArgs([]string{"run", "testdata/scenario.yaml", "--serve", "127.0.0.1:0", "--policy", "packed", "--seed", "2"})
	c.SetOut(&out)
	c.SetErr(errs)
	go func() { ended <- c.ExecuteContext(ctx) }()
	address := regexp.MustCompile(`of (.*) is at (http://127\.0\.0\.1:\d+/) until`)
	var run, url string
	for url == "" {
		select {
		case said := <-errs:
			if m := address.FindStringSubmatch(said); m != nil {
				run, url = m[1], m[2]
			}
		case err := <-ended:
			t.Fatalf("the command has ended: %v", err)
		}
	}
	if run != "policy packed with seed 2" {
		t.Errorf("shows %s", run)
	}
	if !strings.Contains(out.String(), "packed") {
		t.Errorf("no table before the address:\n%s", out.String())
	}
	var moments gpumap.Moments
	fetch(t, url+"moments", &moments)
	if len(moments.Seconds) < 3 || moments.Live || !strings.Contains(moments.Title, "policy packed, seed 2") {
		t.Errorf("moments %+v", moments)
	}
	var picture gpumap.Picture
	fetch(t, fmt.Sprintf("%spicture?at=%d", url, moments.Seconds[len(moments.Seconds)/2]), &picture)
	if picture.Source != "simulator" || len(picture.Owners) == 0 {
		t.Errorf("the picture is of %q, with the owners %v", picture.Source, picture.Owners)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// fetch reads the JSON at an address.
func fetch(t *testing.T, url string, into any) {
	t.Helper()
	answer, err := http.Get(url)
	must.OK(t, err)
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %.300s", url, answer.StatusCode, err, raw)
	}
	must.OK(t, json.Unmarshal(raw, into))
}
