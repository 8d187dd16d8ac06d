package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http/httptrace"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Options say where the scheduler is, and how it is known.
type Options struct {
	// Namespace of the scheduler's pods and of the lease, and Name of both: pods have the label app.kubernetes.io/name=Name.
	Namespace, Name string
	// Port on which the scheduler's pods serve the snapshot.
	Port int
	// Address is the "https://host:port" of a scheduler that is reached without the API server, "" for none.
	Address string
	// CAFile has the certificates that vouch for the scheduler's, "" for none; ServerName is the name in the scheduler's certificate.
	CAFile, ServerName string
	// Insecure allows Address without CAFile.
	Insecure bool
	// Patience is how long each program that is asked may take to begin its answer; 0 stands for the timeout of the kubeconfig's requests,
	// and for 5 s without one.
	Patience time.Duration
}

// patience is more than twice the time in which the scheduler makes its first snapshot of 1,000 nodes.
const patience = 5 * time.Second

// Defaults are the names and the port in deploy/.
func Defaults() Options {
	return Options{Namespace: "tandem-system", Name: "tandem-scheduler", Port: 10261, ServerName: "localhost"}
}

// within returns a context that ends when asked, a program, has not answered in time, unless the caller stops the clock before. The cause of
// its end names the program. With known credentials the clock starts at once, else with the first request that goes out: before that a plugin of
// the kubeconfig may ask the user for them.
func (o *Options) within(ctx context.Context, asked string, known bool) (_ context.Context, stopClock func() bool, cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	limit := cmp.Or(o.Patience, patience)
	clock := time.AfterFunc(math.MaxInt64, func() { end(fmt.Errorf("%s has not answered within %v", asked, limit)) })
	var start sync.Once
	if known {
		start.Do(func() { clock.Reset(limit) })
	}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GetConn: func(string) { start.Do(func() { clock.Reset(limit) }) }})
	return ctx, clock.Stop, func() { clock.Stop(); end(context.Canceled) }
}

// why returns the reason for which a question failed: the end of its context, else err.
func why(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// Check returns an error that names the flag which is missing or too much.
func (o *Options) Check() error {
	switch {
	case o.Address != "" && o.CAFile == "" && !o.Insecure:
		return errors.New("--scheduler-address needs --scheduler-ca FILE, by which the scheduler's certificate is verified, or " +
			"--scheduler-insecure: whoever answers at that address gets the token of the kubeconfig")
	case o.Insecure && o.CAFile != "":
		return errors.New("--scheduler-insecure and --scheduler-ca exclude each other")
	case o.Port < 1 || o.Port > 65535:
		return fmt.Errorf("--scheduler-port: %d, legal are 1 to 65535", o.Port)
	}
	return nil
}

// Step says what is done now, for people who wait.
type Step func(what string)

// Snapshot returns the bytes of the snapshot. Its errors say what is missing and what helps.
func Snapshot(ctx context.Context, config *rest.Config, o Options, step Step) ([]byte, error) {
	if config.Impersonate.UserName != "" {
		return nil, errors.New("get snapshot: the scheduler ignores --as, and would answer for the user of the kubeconfig: " +
			"use a kubeconfig or a --token of the other user")
	}
	o.Patience = cmp.Or(o.Patience, config.Timeout) // --request-timeout
	config = rest.CopyConfig(config)
	config.Timeout = 0 // its clock would run while a plugin asks for credentials, and names nobody
	if o.Address != "" {
		step("asking the scheduler at " + o.Address)
		return ask(ctx, config, o, o.Address)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("get snapshot: %w", err)
	}
	step("looking for the scheduler that schedules")
	finding, _, found := o.within(ctx, "the API server, asked for the scheduler's pods and lease,", false)
	pods, err := candidates(finding, client, &o)
	found()
	if err != nil {
		return nil, fmt.Errorf("get snapshot: %w", err)
	}
	var last error
	for i := range pods {
		step(fmt.Sprintf("forwarding a port to the pod %s/%s (%d of %d)", o.Namespace, pods[i], i+1, len(pods)))
		raw, err := through(ctx, config, o, pods[i], step)
		if err == nil || !errors.Is(err, errNotLeader) {
			return raw, err
		}
		last = err
	}
	return nil, last
}

// through asks one pod of the scheduler.
func through(ctx context.Context, config *rest.Config, o Options, pod string, step Step) ([]byte, error) {
	port, stop, err := forward(ctx, config, &o, pod)
	if err != nil {
		return nil, fmt.Errorf("get snapshot: %w", err)
	}
	defer stop()
	step(fmt.Sprintf("asking the pod %s/%s for the snapshot", o.Namespace, pod))
	return ask(ctx, config, o, fmt.Sprintf("https://127.0.0.1:%d", port))
}
