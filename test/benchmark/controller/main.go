// Command controller measures the memory and the time of the controller on a large cluster: by default 1,000 elastic jobs of up
// to 32 members on 5,000 nodes of eight GPUs. Half of the members run, so that half of the GPUs are idle and every job may grow.
//
// The controller runs as a process under its account, against a real API server. Nothing else runs: no scheduler places what the
// controller asks for. The command prints the largest resident memory that the kernel counted for the process, and the mean time of
// a decision. It fails where the memory is above what it allows.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

func main() {
	w := workload{}
	flag.IntVar(&w.nodes, "nodes", 5000, "nodes of eight GPUs")
	flag.IntVar(&w.jobs, "jobs", 1000, "elastic jobs")
	flag.IntVar(&w.members, "members", 32, "the largest number of members of a job, half of which run")
	passes := flag.Int("passes", 6, "decisions to wait for")
	most := flag.Int("most", 300, "the resident memory that is allowed, in MiB")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, w, *passes, *most)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "controller:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, w workload, passes, most int) error {
	if w.nodes < 1 || w.jobs < 1 || w.members < 2 || w.jobs*w.members/2 > w.nodes*devicesPerNode {
		return fmt.Errorf("-nodes, -jobs, -members: half of %d members of %d jobs do not fit on %d nodes of %d GPUs", w.members, w.jobs, w.nodes, devicesPerNode)
	}
	root, err := sandbox.Root()
	if err != nil {
		return err
	}
	plane, err := sandbox.Start(ctx, sandbox.Options{Authorization: "RBAC"})
	if err != nil {
		return err
	}
	defer plane.Stop()
	begin := time.Now()
	fmt.Fprintf(os.Stderr, "filling the API server with %d nodes and %d pods\n", w.nodes, w.jobs*w.members)
	if err := w.fill(ctx, plane); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "filled in %v\n", time.Since(begin).Round(time.Second))
	c, err := start(ctx, plane, root)
	if err != nil {
		return err
	}
	if err := c.measure(ctx, passes); err != nil {
		return err
	}
	return c.judge(ctx, w.jobs, most)
}

// controller is the process that is measured.
type controller struct {
	process *sandbox.Process
	pid     int
	metrics string
}

func start(ctx context.Context, plane *sandbox.ControlPlane, root string) (*controller, error) {
	binary := filepath.Join(plane.Dir(), "controller")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/controller")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the controller: %w\n%s", err, output)
	}
	kubeconfig, err := plane.ServiceAccount(ctx, "tandem-system", "tandem-controller")
	if err != nil {
		return nil, err
	}
	ports, err := sandbox.FreePorts(1)
	if err != nil {
		return nil, err
	}
	c := &controller{metrics: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	cmd := exec.Command(binary, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--metrics-bind-address="+c.metrics, "--health-probe-bind-address=0")
	if c.process, err = plane.Processes().Start("controller", cmd); err != nil {
		return nil, err
	}
	c.pid = cmd.Process.Pid
	return c, nil
}

// measure waits for some decisions.
func (c *controller) measure(ctx context.Context, passes int) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		values, err := c.read(ctx)
		if err == nil && values["decision_seconds_count"] >= float64(passes) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.process.Done():
			return fmt.Errorf("the controller ended: %w\n%s", c.process.Err(), c.process.Tail(20))
		case <-tick.C:
		}
	}
}

// judge prints what the decisions took.
func (c *controller) judge(ctx context.Context, jobs, most int) error {
	values, err := c.read(ctx)
	if err != nil {
		return err
	}
	peak, err := c.peak()
	if err != nil {
		return err
	}
	count := values["decision_seconds_count"]
	fmt.Printf("%.0f decisions on %.0f gangs, of %.2f s on average; resident memory at most %d MiB, allowed are %d\n",
		count, values["gangs"], values["decision_seconds_sum"]/count, peak, most)
	switch {
	case values["gangs"] != float64(jobs):
		return fmt.Errorf("the controller sees %.0f gangs of %d", values["gangs"], jobs)
	case peak > most:
		return fmt.Errorf("the controller needs %d MiB, %d are allowed", peak, most)
	}
	return nil
}

// read returns the metrics of the controller's elastic gangs by the ends of their names.
func (c *controller) read(ctx context.Context) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.metrics+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	values := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if end, ours := strings.CutPrefix(name, "tandem_controller_elastic_"); ours {
			if values[end], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, fmt.Errorf("read metric %s: %w", name, err)
			}
		}
	}
	return values, nil
}

// peak returns the largest resident memory of the process so far, in MiB.
func (c *controller) peak() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("the kernel tells no VmHWM of process %d", c.pid)
}
