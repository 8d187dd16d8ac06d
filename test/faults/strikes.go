package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
)

// faultOfAClient: one client breaks the server.
func faultOfAClient(ctx context.Context, n *Node) (Times, error) {
	guilty, err := fakegpu.Dial(ctx, n.pipe(n.uuids[0]), fakegpu.ClientLoad{PID: 1<<22 + 1})
	if err != nil {
		return Times{}, err
	}
	defer guilty.Close()
	return brokenServer(ctx, n, guilty.Fault)
}

// clientKilled: the program of a pod gets SIGKILL at work.
func clientKilled(ctx context.Context, n *Node) (Times, error) {
	return brokenServer(ctx, n, func() error {
		if !n.tenants.kill(n.uuids[0]) {
			return errors.New("kill a client: nobody works on the device")
		}
		return nil
	})
}

// brokenServer measures what breaks the server while a client is there that does not notice, so that the server cannot
// recover alone.
func brokenServer(ctx context.Context, n *Node, strike func() error) (Times, error) {
	unread, err := fakegpu.Dial(ctx, n.pipe(n.uuids[0]), fakegpu.ClientLoad{PID: 1 << 22})
	if err != nil {
		return Times{}, err
	}
	defer unread.Close()
	begin := time.Now()
	if err := strike(); err != nil {
		return Times{}, err
	}
	var t Times
	if t.Found, err = took(ctx, begin, "reason MPSFault", sick(n, "MPSFault")); err != nil {
		return t, err
	}
	t.Back, err = took(ctx, time.Now(), "a healthy device", n.healthy)
	return t, err
}

func daemonKilled(ctx context.Context, n *Node) (Times, error) {
	begin := time.Now()
	if err := n.killDaemon(n.uuids[0]); err != nil {
		return Times{}, err
	}
	return n.servedAgain(ctx, begin)
}

func staleDirectory(ctx context.Context, n *Node) (Times, error) {
	begin := time.Now()
	if err := struck("stale pipe directory")(ctx, n); err != nil {
		return Times{}, err
	}
	return n.servedAgain(ctx, begin)
}

// servedAgain measures until the first device takes clients again: the agent finds no daemon and starts one in one go.
func (n *Node) servedAgain(ctx context.Context, begin time.Time) (Times, error) {
	found, err := took(ctx, begin, "a new daemon", func(ctx context.Context) error { return n.connects(ctx, n.uuids[0]) })
	if err != nil {
		return Times{}, err
	}
	back, err := took(ctx, time.Now(), "a node that is whole", n.whole)
	return Times{found, back}, err
}

func agentKilled(ctx context.Context, n *Node) (Times, error) {
	begin := time.Now()
	n.StopAgent(true)
	found, err := took(ctx, begin, "a node without slots", func(ctx context.Context) error {
		slots, err := n.offered(ctx)
		if err == nil && slots != 0 {
			err = fmt.Errorf("the node offers %d slots", slots)
		}
		return err
	})
	if err != nil {
		return Times{}, err
	}
	begin = time.Now()
	if err := n.StartAgent(); err != nil {
		return Times{}, err
	}
	back, err := took(ctx, begin, "the slots", n.serving)
	return Times{found, back}, errors.Join(err, n.shares(ctx))
}

func kubeletRestarted(ctx context.Context, n *Node) (Times, error) {
	begin := time.Now()
	n.StopKubelet()
	found, err := took(ctx, begin, "reason NotRegistered", func(ctx context.Context) error {
		return n.condition(ctx, v1alpha1.ConditionReady, v1alpha1.ReadyNotRegistered)
	})
	if err != nil {
		return Times{}, err
	}
	begin = time.Now()
	if err := n.StartKubelet(ctx); err != nil {
		return Times{}, err
	}
	back, err := took(ctx, begin, "the slots", n.serving)
	if err == nil {
		_, err = took(ctx, begin, "a node that is whole", n.whole)
	}
	return Times{found, back}, err
}

func ownCheckpoint(ctx context.Context, n *Node) (Times, error) {
	n.StopAgent(false)
	if err := n.spoilRecords(1); err != nil {
		return Times{}, err
	}
	begin := time.Now()
	if err := n.StartAgent(); err != nil {
		return Times{}, err
	}
	found, err := took(ctx, begin, "the error", func(ctx context.Context) error {
		errs, err := n.Metric(ctx, "tandem_agent_checkpoint_errors_total", `owner="agent"`)
		if err == nil && errs == 0 {
			err = errors.New("no error is counted")
		}
		return err
	})
	if err != nil {
		return Times{}, err
	}
	back, err := took(ctx, time.Now(), "the slots", n.serving)
	return Times{found, back}, errors.Join(err, n.shares(ctx))
}

func diskFull(ctx context.Context, n *Node) (Times, error) {
	if err := n.fillDisk(); err != nil {
		return Times{}, err
	}
	begin := time.Now()
	pod, err := n.pods.create(ctx, "unlucky", n.uuids[0], 2)
	if err != nil {
		return Times{}, err
	}
	found, err := took(ctx, begin, "the rejection", func(ctx context.Context) error {
		why, err := n.pods.rejected(ctx)
		if err == nil && !strings.Contains(why[pod.uid], "no space left") {
			err = fmt.Errorf("the pod was rejected with %q", why[pod.uid])
		}
		return err
	})
	if err != nil {
		return Times{}, err
	}
	if err := errors.Join(lifted(ctx, n, "disk full under the agent's checkpoint"), n.pods.remove(ctx, "unlucky")); err != nil {
		return Times{}, err
	}
	begin = time.Now()
	if _, err := n.pods.create(ctx, "lucky", n.uuids[0], 2); err != nil {
		return Times{}, err
	}
	back, err := took(ctx, begin, "the next pod", n.shares)
	return Times{found, back}, err
}

// contextLimit of an A100 under the fake driver's CUDA 13.0.
const contextLimit = 48

func contextsExhausted(ctx context.Context, n *Node) (Times, error) {
	var clients []*fakegpu.Client
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	for pid := 1 << 22; ; pid++ {
		c, err := fakegpu.Dial(ctx, n.pipe(n.uuids[0]), fakegpu.ClientLoad{PID: pid})
		if errors.Is(err, fakegpu.ErrTooManyContexts) {
			break
		}
		if err != nil || len(clients) > contextLimit {
			return Times{}, fmt.Errorf("client %d: %w", len(clients), err)
		}
		clients = append(clients, c)
	}
	begin := time.Now()
	if _, err := n.pods.create(ctx, "waits", n.uuids[0], 2); err != nil {
		return Times{}, err
	}
	found, err := took(ctx, begin, "the refusal", func(ctx context.Context) error {
		refused, err := n.Metric(ctx, "tandem_agent_prestart_failures_total", `reason="ContextsExhausted"`)
		if err == nil && refused == 0 {
			err = errors.New("nothing was refused")
		}
		return err
	})
	if err != nil {
		return Times{}, err
	}
	begin = time.Now()
	for _, c := range clients {
		c.Close()
	}
	back, err := took(ctx, begin, "the pod", n.whole)
	return Times{found, back}, err
}

// withoutLibrary measures an agent that starts without a library, which comes later.
func withoutLibrary(name string, found func(context.Context, *Node) error) func(context.Context, *Node) (Times, error) {
	return func(ctx context.Context, n *Node) (Times, error) {
		n.StopAgent(false)
		if err := n.ownLibraries(name); err != nil {
			return Times{}, err
		}
		var t Times
		begin := time.Now()
		err := n.StartAgent()
		if err == nil {
			t.Found, err = took(ctx, begin, "a GPUNode that says it", func(ctx context.Context) error { return found(ctx, n) })
		}
		if err != nil {
			return t, err
		}
		begin = time.Now()
		if err := os.Symlink(filepath.Join(n.world.fakes(), name), filepath.Join(n.libraries, name)); err != nil {
			return t, err
		}
		t.Back, err = took(ctx, begin, "a node that is whole", n.whole)
		return t, err
	}
}

// ownLibraries gives the node the fakes without one of them.
func (n *Node) ownLibraries(without string) error {
	entries, err := os.ReadDir(n.libraries)
	if err != nil {
		return err
	}
	own := n.path("libraries")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == without {
			continue
		}
		if err := os.Symlink(filepath.Join(n.libraries, e.Name()), filepath.Join(own, e.Name())); err != nil {
			return err
		}
	}
	n.libraries = own
	return nil
}

// condition returns nil when the GPUNode gives the reason for a condition.
func (n *Node) condition(ctx context.Context, kind, reason string) error {
	g, err := n.GPUNode(ctx)
	if err != nil {
		return err
	}
	if c := meta.FindStatusCondition(g.Status.Conditions, kind); c == nil || c.Reason != reason || c.Status == metav1.ConditionTrue {
		return fmt.Errorf("the condition %s is %+v", kind, c)
	}
	return nil
}
