package main

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func TestServe(t *testing.T) {
	img, err := random.Image(1000, 2)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("tandem-scheduler:v1")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "scheduler.tar")
	if err := tarball.WriteToFile(archive, tag, img); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	out, in := io.Pipe()
	go func() { ended <- serve(ctx, "127.0.0.1:0", []string{archive}, in) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSpace(strings.TrimPrefix(line, "serving "))
	pulled, err := remote.Image(mustTag(t, address+"/tandem-scheduler:v1"))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := img.ConfigName()
	if got, err := pulled.ConfigName(); err != nil || got != want {
		t.Errorf("pulled %v (%v), want %v", got, err, want)
	}
	if _, err := remote.Image(mustTag(t, address+"/tandem-scheduler:v2")); err == nil {
		t.Error("an image that no archive holds is served")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("serve: %v", err)
	}
}

func mustTag(t *testing.T, text string) name.Tag {
	t.Helper()
	tag, err := name.NewTag(text, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	return tag
}

func TestServeRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"0.0.0.0 is not on loopback": {"0.0.0.0:0", "x.tar"},
		"no archives are given":      {"127.0.0.1:0"},
		"no such file":               {"127.0.0.1:0", "/nowhere/x.tar"},
	} {
		if err := serve(t.Context(), args[0], args[1:], io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
