package edit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/config"
	nvidia "github.com/tandem-gpu/tandem/internal/agent/driver"
)

// Libraries gives containers what they need of the driver beside device files, as far as the configuration wants it and
// the host has it.
type Libraries struct {
	edits string
	find  func() (cdi.Edits, error)
	log   klog.Logger

	mu   sync.Mutex
	said string
}

// OpenLibraries looks for the libraries of a version of the driver, and says once what containers will get.
// edits is a legal value of DriverConfig.Edits.
func OpenLibraries(ctx context.Context, edits string, where nvidia.Options, version string) *Libraries {
	finder := nvidia.New(where)
	l := &Libraries{
		edits: edits,
		find:  func() (cdi.Edits, error) { return finder.Edits(version) },
		log:   klog.FromContext(ctx),
	}
	_, _, _ = l.now()
	return l
}

// now returns what containers that start now get, and false where they get device files alone. If the configuration
// insists on libraries and the host has none now, that is an error.
func (l *Libraries) now() (cdi.Edits, bool, error) {
	if l.edits == config.EditsDevices {
		l.say("Containers get device files alone, as driver.edits says: their libraries come from the image or from NVIDIA's runtime")
		return cdi.Edits{}, false, nil
	}
	found, err := l.find()
	switch {
	case err == nil:
		l.say("Containers get the driver's libraries", "mounts", len(found.Mounts), "hooks", len(found.Hooks))
		return found, true, nil
	case l.edits == config.EditsAuto:
		l.say("Containers get device files alone: their libraries come from the image or from NVIDIA's runtime", "why", err.Error())
		return cdi.Edits{}, false, nil
	}
	l.say("Containers cannot start: driver.edits wants the driver's libraries", "why", err.Error())
	return cdi.Edits{}, false, fmt.Errorf("driver.edits is %q: %w", config.EditsLibrary, err)
}

// say logs what is news.
func (l *Libraries) say(what string, keysAndValues ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if news := fmt.Sprint(what, keysAndValues); news != l.said {
		l.said = news
		l.log.Info(what, keysAndValues...)
	}
}

// Variables that name the devices of a container: to NVIDIA's runtime and to CUDA.
const (
	runtimeDevices = "NVIDIA_VISIBLE_DEVICES="
	cudaDevices    = "CUDA_VISIBLE_DEVICES="
)

// Complete adds the driver's part to a spec. NVIDIA's runtime, which may start the container too, then finds that it
// has nothing to do.
func (l *Libraries) Complete(s *cdi.Spec) error {
	found, ok, err := l.now()
	if err != nil || !ok {
		return err
	}
	s.Driver = found
	s.Edits.Env = slices.Clone(s.Edits.Env)
	for i, e := range s.Edits.Env {
		if strings.HasPrefix(e, runtimeDevices) {
			s.Edits.Env[i] = runtimeDevices + "void"
		}
	}
	return nil
}

// Assigned returns the environment of a container as it follows from the assignment, with the devices in place of
// "void", which NVIDIA's runtime needs.
func Assigned(env []string) []string {
	list := slices.Clone(env)
	void := slices.Index(list, runtimeDevices+"void")
	devices := slices.IndexFunc(list, func(e string) bool { return strings.HasPrefix(e, cudaDevices) })
	if void >= 0 && devices >= 0 {
		list[void] = runtimeDevices + strings.TrimPrefix(list[devices], cudaDevices)
	}
	return list
}
