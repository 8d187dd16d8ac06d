package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/model"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/server"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/wire"
	"github.com/tandem-gpu/tandem/examples/elastic/trainer/worker"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// asTrainer makes this test binary the trainer: the tests start it again.
const asTrainer = "TRAINER_TEST_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(asTrainer) != "" {
		main()
	}
	if err := os.Setenv(asTrainer, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// hang is a time that only processes that hang need.
const hang = 3 * time.Minute

// training is a training by processes.
type training struct {
	*testing.T
	*processes
	first   *process[server.Line]
	address string
}

// newTraining starts server 0, and ends all processes after the test.
func newTraining(t *testing.T, args ...string) *training {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	ps := newProcesses(ctx, t.Output())
	t.Cleanup(func() { ps.end(); cancel() })
	tr := &training{T: t, processes: ps}
	tr.first = tr.server(append([]string{"--name=server-0", "--listen=127.0.0.1:0"}, args...)...)
	tr.address = awaitLine(t, tr.first, "listening", func(l server.Line) bool { return l.Event == "listening" }).Address
	return tr
}

func (tr *training) server(args ...string) *process[server.Line] {
	tr.Helper()
	p, err := start[server.Line](tr.processes, append([]string{"server"}, args...)...)
	must.OK(tr, err)
	return p
}

func (tr *training) worker(name string, args ...string) *process[worker.Line] {
	tr.Helper()
	p, err := start[worker.Line](tr.processes, append([]string{"worker", "--coordinator=" + tr.address, "--name=" + name}, args...)...)
	must.OK(tr, err)
	return p
}

// await waits for a line of server 0.
func (tr *training) await(what string, want func(server.Line) bool) server.Line {
	tr.Helper()
	return awaitLine(tr.T, tr.first, what, want)
}

func awaitLine[L any](t *testing.T, p *process[L], what string, want func(L) bool) L {
	t.Helper()
	l, err := p.await(want)
	if err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
	return l
}

func send[L any](t *testing.T, p *process[L], s syscall.Signal) {
	t.Helper()
	must.OK(t, p.cmd.Process.Signal(s))
}

// wantExit waits for the end of a process and checks its exit code; -1 stands for a signal.
func wantExit[L any](t *testing.T, p *process[L], code int) {
	t.Helper()
	for {
		if _, err := p.await(func(L) bool { return true }); err != nil {
			break
		}
	}
	if got := p.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("%v ended with %d, want %d", p.cmd.Args[1:], got, code)
	}
}

// undisturbed returns the losses of all steps, and the digest at the end, of a training in this process.
func undisturbed(spec model.Spec, steps int) (losses []float64, digest string) {
	network, params := model.NewNetwork(spec), spec.Initial()
	for step := range steps {
		sum, loss := make([]int32, len(params)), int64(0)
		for slice := range spec.Slices {
			loss += network.AddGradient(params, step, slice, sum)
		}
		spec.Descend(params, sum)
		losses = append(losses, float64(loss)/model.LossUnit)
	}
	hash := sha256.Sum256(wire.OfFloats(params))
	return losses, hex.EncodeToString(hash[:])
}

// checkReport checks that the report has each step once, in order, with the losses of the undisturbed training, and ends with
// its parameters.
func (tr *training) checkReport(spec model.Spec, steps int) {
	tr.Helper()
	losses, digest := undisturbed(spec, steps)
	done := 0
	for _, l := range tr.first.lines {
		switch l.Event {
		case "":
			done++
			if l.Step != done || l.Loss != losses[done-1] || l.Samples != done*spec.Batch {
				tr.Fatalf("line %d of steps is step %d with loss %v after %d samples, want step %d with %v after %d",
					done, l.Step, l.Loss, l.Samples, done, losses[done-1], done*spec.Batch)
			}
		case "finished":
			if l.Digest != digest || l.Step != steps {
				tr.Errorf("the training ends after %d steps with parameters %s, want %d and %s", l.Step, l.Digest, steps, digest)
			}
		}
	}
	if done != steps {
		tr.Errorf("the report has %d steps, want %d", done, steps)
	}
	if first, last := losses[0], mean(losses[steps-10:]); last > first/2 {
		tr.Errorf("the loss falls from %v to %v only", first, last)
	}
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// small is a network for tests of processes: a step takes milliseconds.
var small = model.Spec{Seed: 7, Width: 64, Batch: 48, Slices: 12, Rate: 0.05}

func specArgs(s model.Spec) []string { return measurement{spec: s}.specArgs() }

// slow makes a step of six workers take 160 ms, so that the training is far from its end while members come and go. Fast
// workers do the rest when the slow ones have left.
const slow = "--work=20ms"

// Workers join, leave and are killed, servers join and leave, all while the training goes on: 3 workers, 6, one killed, 2; 1
// server, 2, 1. The result is that of an undisturbed training, to the last bit.
func TestMembersComeAndGo(t *testing.T) {
	const steps = 300
	tr := newTraining(t, append([]string{"--steps=300", "--min-workers=3"}, specArgs(small)...)...)
	stays := []*process[worker.Line]{tr.worker("a"), tr.worker("b")}
	goes := []*process[worker.Line]{tr.worker("c", slow)}
	tr.await("a step of 3 workers", func(l server.Line) bool { return l.Event == "" && l.Workers == 3 && l.Servers == 1 })

	second := tr.server("--name=server-1", "--index=1", "--listen=127.0.0.1:0", "--coordinator="+tr.address)
	tr.await("a step of 2 servers", func(l server.Line) bool { return l.Event == "" && l.Servers == 2 })
	goes = append(goes, tr.worker("d", slow), tr.worker("e", slow))
	victim := tr.worker("victim", slow)
	tr.await("a step of 6 workers", func(l server.Line) bool { return l.Event == "" && l.Workers == 6 })

	// It was told to compute two slices for at least 160 ms.
	awaitLine(t, victim, "the next task of the victim", func(l worker.Line) bool { return l.Event == "task" })
	send(t, victim, syscall.SIGKILL)
	wantExit(t, victim, -1)
	tr.await("the loss of the victim", func(l server.Line) bool { return l.Event == "worker-lost" && l.Name == "victim" })

	send(t, second, syscall.SIGTERM)
	wantExit(t, second, 0)
	for _, p := range goes {
		send(t, p, syscall.SIGTERM)
	}
	for _, p := range goes {
		wantExit(t, p, left)
	}
	tr.await("a step of 2 workers and 1 server", func(l server.Line) bool { return l.Event == "" && l.Workers == 2 && l.Servers == 1 })
	for _, p := range stays {
		wantExit(t, p, 0)
	}
	wantExit(t, tr.first, 0)
	tr.checkReport(small, steps)
	for _, l := range tr.first.lines {
		if l.Event == "worker-lost" && l.Name != "victim" || l.Event == "server-lost" {
			t.Errorf("%s %s: it was not killed", l.Event, l.Name)
		}
	}
}

// The network that the flags give by default has at least a million parameters, and goes over the wire as it is.
func TestDefaultNetwork(t *testing.T) {
	tr := newTraining(t, "--steps=3")
	wantExit(t, tr.worker("only"), 0)
	wantExit(t, tr.first, 0)
	spec := model.Spec{Seed: 1, Width: 896, Batch: 48, Slices: 12, Rate: 0.02}
	if n := spec.Params(); n < 1_000_000 {
		t.Errorf("the network has %d parameters", n)
	}
	_, digest := undisturbed(spec, 3)
	if last := tr.first.lines[len(tr.first.lines)-1]; last.Digest != digest {
		t.Errorf("the last line is %+v, want the digest %s", last, digest)
	}
}

// A worker whose pod has a notice leaves before the signal, waits for it, and comes back when the notice is taken back.
func TestNotice(t *testing.T) {
	tr := newTraining(t, append([]string{"--steps=100000", "--every=100000"}, specArgs(small)...)...)
	tr.worker("stays")
	file := filepath.Join(t.TempDir(), "annotations")
	write := func(text string) {
		t.Helper()
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("other=\"1\"\n")
	p := tr.worker("noticed", "--podinfo="+file)
	event := func(name string) {
		t.Helper()
		awaitLine(t, p, name, func(l worker.Line) bool { return l.Event == name })
	}
	event("task")
	write("other=\"1\"\ntandem-gpu.io/leaving-at=\"2026-01-31T12:00:00Z\"\n")
	event("left")
	tr.await("the worker that left", func(l server.Line) bool { return l.Event == "worker-left" && l.Name == "noticed" })
	write("other=\"1\"\n")
	event("joined")
	event("task")
	write("tandem-gpu.io/leaving-at=\"2026-01-31T12:00:00Z\"\n")
	event("left")
	send(t, p, syscall.SIGTERM)
	wantExit(t, p, left)
}

// A server that comes back at its old address is reached over new connections: no worker is lost by it.
func TestServerComesBack(t *testing.T) {
	tr := newTraining(t, append([]string{"--steps=100000"}, specArgs(small)...)...)
	p := tr.worker("only")
	listen := "127.0.0.1:0"
	for range 2 {
		second := tr.server("--index=1", "--listen="+listen, "--coordinator="+tr.address)
		listen = awaitLine(t, second, "listening", func(l server.Line) bool { return l.Event == "listening" }).Address
		tr.await("a step of two servers", func(l server.Line) bool { return l.Event == "" && l.Servers == 2 })
		send(t, second, syscall.SIGTERM)
		wantExit(t, second, 0)
		tr.await("a step of one server", func(l server.Line) bool { return l.Event == "" && l.Servers == 1 })
	}
	send(t, p, syscall.SIGTERM)
	wantExit(t, p, left)
	tr.await("that the worker left", func(l server.Line) bool { return l.Event == "worker-left" })
	for _, l := range p.lines {
		if l.Event == "rejoining" {
			t.Errorf("the worker was lost: %s", l.Reason)
		}
	}
}

// The loss of a server that holds parameters ends the training: server 0 does not go on without them.
func TestLostServer(t *testing.T) {
	tr := newTraining(t, append([]string{"--steps=100000", "--every=100000"}, specArgs(small)...)...)
	second := tr.server("--index=1", "--listen=127.0.0.1:0", "--coordinator="+tr.address)
	tr.await("two servers", func(l server.Line) bool { return l.Event == "moved" && l.Servers == 2 })
	send(t, second, syscall.SIGKILL)
	wantExit(t, tr.first, failed)
}

// With --stay the servers outlive the training, and a worker that comes late learns that it is over.
func TestStay(t *testing.T) {
	tr := newTraining(t, append([]string{"--steps=5", "--stay"}, specArgs(small)...)...)
	second := tr.server("--index=1", "--stay", "--listen=127.0.0.1:0", "--coordinator="+tr.address)
	tr.await("two servers", func(l server.Line) bool { return l.Event == "moved" && l.Servers == 2 })
	wantExit(t, tr.worker("first"), 0)
	wantExit(t, tr.worker("late"), 0)
	for _, p := range []*process[server.Line]{second, tr.first} {
		send(t, p, syscall.SIGTERM)
		wantExit(t, p, 0)
	}
}

// A coordinator that is stopped says so to all, since nobody has its parameters.
func TestCoordinatorStops(t *testing.T) {
	tr := newTraining(t, append([]string{"--steps=100000", "--every=100000"}, specArgs(small)...)...)
	second := tr.server("--index=1", "--listen=127.0.0.1:0", "--coordinator="+tr.address)
	tr.await("two servers", func(l server.Line) bool { return l.Event == "moved" && l.Servers == 2 })
	p := tr.worker("left-alone", "--patience=0s")
	awaitLine(t, p, "a task", func(l worker.Line) bool { return l.Event == "task" })
	send(t, tr.first, syscall.SIGTERM)
	wantExit(t, tr.first, failed)
	l := awaitLine(t, p, "the end", func(l worker.Line) bool { return l.Event == "rejoining" })
	// A worker that reads parameters in that moment may see the end of a connection before it hears the reason.
	if !strings.Contains(l.Reason, "stopped before the last step") && !strings.Contains(l.Reason, "connection re") {
		t.Errorf("the worker says %q", l.Reason)
	}
	wantExit(t, p, failed)
	wantExit(t, second, failed)
}

// The table has a rate for each number of servers and workers, and the pace of the work bounds it: 48 samples on w workers take
// at least 48/w · 2 ms.
func TestMeasure(t *testing.T) {
	args := append([]string{"measure", "--workers=2", "--servers=2", "--steps=6", "--work=2ms", "--bandwidth=0"}, specArgs(small)...)
	var out bytes.Buffer
	if code := execute(t.Context(), args, &out, t.Output()); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	must.OK(t, err)
	var sizes []string
	for _, row := range rows[1:] {
		sizes = append(sizes, row[0]+"x"+row[1])
		rate, err := strconv.ParseFloat(row[2], 64)
		workers, _ := strconv.Atoi(row[1])
		if err != nil || !(rate > 0 && rate <= float64(workers)*500*1.02) { // reports have milliseconds
			t.Errorf("rate of %s servers and %d workers: %s, want above 0 and at most %d", row[0], workers, row[2], workers*500)
		}
	}
	if got := strings.Join(rows[0], ",") + " " + strings.Join(sizes, " "); got != "servers,workers,rate 1x1 1x2 2x1 2x2" {
		t.Errorf("the table is %q", got)
	}
}

// The output for a profile has what a profile has: the numbers of workers and of servers of each rate.
func TestMeasuredProfile(t *testing.T) {
	var out bytes.Buffer
	m := measurement{work: time.Millisecond, output: "yaml", spec: small}
	must.OK(t, m.print(&out, []point{{1, 1, 10}, {1, 2, 19.25}, {2, 1, 11}}))
	var profile v1alpha1.WorkloadProfile
	if err := yaml.UnmarshalStrict(out.Bytes(), &profile); err != nil {
		t.Fatalf("%v in\n%s", err, out.String())
	}
	var got []string
	for _, r := range profile.Spec.Scaling.Rates {
		got = append(got, fmt.Sprintf("%d workers with %d servers: %s", r.Workers, r.Servers, r.Rate.String()))
	}
	want := []string{"1 workers with 1 servers: 10", "2 workers with 1 servers: 19200m", "1 workers with 2 servers: 11"}
	if diff := cmp.Diff(want, got); diff != "" || profile.Spec.Scaling.ResizeTime.Duration != 0 {
		t.Errorf("the profile (-want +got):\n%s\n%s", diff, out.String())
	}
}

// A flag that is not legal is refused with its name and the legal values.
func TestFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"server --steps=0", "--steps: 0 is not from 1 to 100000000"},
		{"server --min-workers=0", "--min-workers: 0 is not from 1 to 10000"},
		{"server --every=0", "--every: 0 is not 1 or more"},
		{"server --index=-1", "--index: -1 is not from 0 to 99"},
		{"server --index=1", "--coordinator: \"\" is not host:port"},
		{"server --listen=nowhere", "--listen: \"nowhere\" is not host:port or :port"},
		{"server --listen=:70700", "--listen: the port \"70700\" is not from 0 to 65535"},
		{"server --width=7", "--width: 7 is not from 8 to 2048"},
		{"server --batch=0", "--batch: 0 is not from 1 to 4096"},
		{"server --slices=5", "--slices: 5 is not a divisor of the batch of 48 samples"},
		{"server --rate=0", "--rate: 0 is not above 0 and at most 10"},
		{"server --rate=NaN", "--rate: NaN is not above 0 and at most 10"},
		{"server --bandwidth=0.5", "--bandwidth: 0.5 is neither 0 nor from 1 to 1000000 MB a second"},
		{"server --bandwidth=NaN", "--bandwidth: NaN is neither 0 nor from 1"},
		{"server --patience=-1s", "--patience: -1s is not 0s or more"},
		{"server now", "server takes flags only, has the argument \"now\""},
		{"server --step=3", "unknown flag: --step; see trainer server --help"},
		{"worker --coordinator=here", "--coordinator: \"here\" is not host:port"},
		{"worker --coordinator=here:0", "--coordinator: the port \"0\" is not from 1 to 65535"},
		{"worker --work=2m", "--work: 2m0s is not from 0s to 1m"},
		{"worker --metrics=9400", "--metrics: \"9400\" is not host:port or :port"},
		{"worker --patience=-1s", "--patience: -1s is not 0s or more"},
		{"measure --output=xml", "--output: \"xml\" is not one of csv, yaml"},
		{"measure --output=yaml --workers=33 --servers=2", "--output: a WorkloadProfile has at most 64 rates, and 33 workers with 2 servers make 66"},
		{"measure --steps=2", "--steps: 2 is not from 3 to"},
		{"measure --workers=0", "--workers: 0 is not from 1 to 100"},
		{"measure --servers=0", "--servers: 0 is not from 1 to 99"},
		{"train", "unknown command \"train\", known are server, worker, measure"},
	} {
		var errs bytes.Buffer
		code := execute(t.Context(), strings.Fields(c.args), &errs, &errs)
		if code != broken || !strings.Contains(errs.String(), c.want) {
			t.Errorf("trainer %s: exit code %d and %q, want 2 and %q", c.args, code, errs.String(), c.want)
		}
	}
}
