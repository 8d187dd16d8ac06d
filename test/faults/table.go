package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Row is one fault of the table in docs/faults.md.
type Row struct {
	Name string
	// How says how the agent finds the fault, Pods what pods see, and Operator what the operator sees.
	How, Pods, Operator string
	// config of the agent; empty is the default.
	config string
	// measure makes the fault on a node with a pod on each GPU. The fault hits the first GPU; a check of the pod on the
	// second follows. Nil means that there is no measurement; then Figures says why.
	measure func(context.Context, *Node) (Times, error)
	Figures string
	// spoils: the neighbour may notice.
	spoils bool
}

// Times is how long something took; negative means that it does not happen.
type Times struct{ Found, Back time.Duration }

// never is the time of what does not happen.
const never = time.Duration(-1)

// String is the two columns of the table.
func (t Times) String() string { return inWords(t.Found) + " | " + inWords(t.Back) }

func inWords(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// step of the measurements' polls.
const measureStep = 20 * time.Millisecond

// took waits until check returns nil and returns how long that took since begin.
func took(ctx context.Context, begin time.Time, what string, check func(context.Context) error) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := poll(ctx, measureStep, what, check)
	return time.Since(begin), err
}

// sick returns nil when the GPUNode says that the first device takes no work for the reason, or recovers from it
// already: the agent replaces a server without clients at once.
func sick(n *Node, reason string) func(context.Context) error {
	return func(ctx context.Context) error {
		g, err := n.GPUNode(ctx)
		if err != nil {
			return err
		}
		for _, d := range g.Status.Devices {
			if d.ID == n.uuids[0] && (d.Reason == reason || strings.Contains(d.Message, "recovers from "+reason)) {
				return nil
			}
		}
		return fmt.Errorf("the devices are %+v", g.Status.Devices)
	}
}

// sickness measures a fault that makes the device unhealthy. If the test has to end the fault, the time back counts
// from then.
func sickness(name, reason string) func(context.Context, *Node) (Times, error) {
	return func(ctx context.Context, n *Node) (Times, error) {
		f, err := find(name)
		if err != nil {
			return Times{}, err
		}
		begin := time.Now()
		if err := f.strike(ctx, n, n.uuids[0], 0); err != nil {
			return Times{}, err
		}
		var t Times
		if t.Found, err = took(ctx, begin, "reason "+reason, sick(n, reason)); err != nil {
			return t, err
		}
		begin = time.Now()
		if f.lift != nil {
			if err := f.lift(ctx, n, n.uuids[0]); err != nil {
				return t, err
			}
		}
		t.Back, err = took(ctx, begin, "a healthy device", n.healthy)
		return t, err
	}
}

// counted measures a fault that shows in a metric and takes no device out of work.
func counted(strike func(context.Context, *Node) error, metric string, labels ...string) func(context.Context, *Node) (Times, error) {
	return func(ctx context.Context, n *Node) (Times, error) {
		before, err := n.Metric(ctx, metric, labels...)
		if err != nil {
			before = 0 // a series that is not there yet
		}
		begin := time.Now()
		if err := strike(ctx, n); err != nil {
			return Times{}, err
		}
		t := Times{Back: never}
		t.Found, err = took(ctx, begin, metric, func(ctx context.Context) error {
			now, err := n.Metric(ctx, metric, labels...)
			if err == nil && now <= before {
				err = fmt.Errorf("%s is %v, as before", metric, now)
			}
			return err
		})
		return t, errors.Join(err, n.healthy(ctx))
	}
}

// struck is a fault of the list on the first device.
func struck(name string) func(context.Context, *Node) error {
	return func(ctx context.Context, n *Node) error {
		f, err := find(name)
		if err != nil {
			return err
		}
		return f.strike(ctx, n, n.uuids[0], 0)
	}
}

func lifted(ctx context.Context, n *Node, name string) error {
	f, err := find(name)
	if err != nil {
		return err
	}
	return f.lift(ctx, n, n.uuids[0])
}

func find(name string) (Fault, error) {
	for _, f := range Faults() {
		if f.Name == name {
			return f, nil
		}
	}
	return Fault{}, fmt.Errorf("find fault: none is called %q", name)
}

// Measure makes the fault of a row on a node of its own.
func (w *World) Measure(ctx context.Context, r Row) (Times, error) {
	config := r.config
	if config == "" {
		config = "{}"
	}
	n, err := w.NewNode(ctx, Spec{GPUs: 2, SlotsPerGPU: 10, Config: config, SmallDisk: strings.HasPrefix(r.Name, "Disk full")})
	if err != nil {
		return Times{}, err
	}
	defer n.Remove()
	neighbour, err := n.inhabit(ctx)
	if err != nil {
		return Times{}, fmt.Errorf("%w\n%s", err, n.Log())
	}
	t, err := r.measure(ctx, n)
	if err != nil {
		return t, fmt.Errorf("%w\n%s", err, n.Log())
	}
	if said := n.tenants.story(neighbour.uid); !r.spoils && len(said) != 1 {
		return t, fmt.Errorf("the program on the other device said %q\n%s", said, n.Log())
	}
	return t, nil
}

// inhabit waits for a node that is whole, puts a pod on each device and returns that on the second.
func (n *Node) inhabit(ctx context.Context) (*Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := poll(ctx, measureStep, "a node that is whole", n.whole); err != nil {
		return nil, err
	}
	var last *Pod
	for i, uuid := range n.uuids {
		var err error
		if last, err = n.pods.create(ctx, fmt.Sprintf("on-g%d", i), uuid, 3); err != nil {
			return nil, err
		}
	}
	return last, poll(ctx, measureStep, "pods that work", n.whole)
}
