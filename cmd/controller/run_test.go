package main

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// adder is a manager that notes what is added to it.
type adder struct {
	manager.Manager
	checks []string
	added  []manager.Runnable
	err    error
}

func (a *adder) AddReadyzCheck(name string, _ healthz.Checker) error {
	a.checks = append(a.checks, name)
	return a.err
}

func (a *adder) Add(r manager.Runnable) error {
	a.added = append(a.added, r)
	return nil
}

type still struct{}

func (still) Start(context.Context) error        { return nil }
func (still) Collectors() []prometheus.Collector { return nil }
func (still) Ready(*http.Request) error          { return nil }

// A feature runs once its check of readiness is added, and not without it.
func TestAdd(t *testing.T) {
	m := &adder{}
	with := &shared{manager: m}
	if err := with.add("still", still{}); err != nil || len(m.added) != 1 || len(m.checks) != 1 || m.checks[0] != "still" {
		t.Errorf("%v: %d features, checks %q", err, len(m.added), m.checks)
	}
	m.err = errors.New("a check of this name exists")
	if err := with.add("again", still{}); !errors.Is(err, m.err) || len(m.added) != 1 {
		t.Errorf("%v: %d features", err, len(m.added))
	}
}
