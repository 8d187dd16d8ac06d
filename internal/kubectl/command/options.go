package command

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/kubectl/connection"
	"github.com/tandem-gpu/tandem/internal/kubectl/progress"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// options are the flags of all commands.
type options struct {
	streams    Streams
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	scheduler  connection.Options
	file       string
	quiet      bool
	colour     string
}

// colours are the values of --color.
var colours = []string{"auto", "always", "never"}

func (o *options) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` with the clusters and credentials; without it $KUBECONFIG, then ~/.kube/config")
	clientcmd.BindOverrideFlags(&o.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.StringVar(&o.file, "snapshot", "", "`file` with a snapshot, - for standard input, in place of asking the scheduler")
	flags.BoolVar(&o.quiet, "quiet", false, "do not say on a terminal's stderr what takes its time")
	flags.StringVar(&o.colour, "color", "auto", "colours: "+strings.Join(colours, ", ")+"; auto is on terminals without $NO_COLOR")
	d := connection.Defaults()
	s := &o.scheduler
	flags.StringVar(&s.Namespace, "scheduler-namespace", d.Namespace, "`namespace` of the scheduler's pods and lease")
	flags.StringVar(&s.Name, "scheduler-name", d.Name, "`name` of the scheduler's lease, and value of the label app.kubernetes.io/name of its pods")
	flags.IntVar(&s.Port, "scheduler-port", d.Port, "port on which the scheduler's pods serve the snapshot")
	flags.StringVar(&s.Address, "scheduler-address", "", "`https://host:port` of the scheduler, for a port that you forward yourself")
	flags.StringVar(&s.CAFile, "scheduler-ca", "", "`file` with the certificates that vouch for the scheduler's; without it the scheduler is known by its pod only, as the API server says")
	flags.StringVar(&s.ServerName, "scheduler-server-name", d.ServerName, "`name` in the scheduler's certificate, for --scheduler-ca")
	flags.BoolVar(&s.Insecure, "scheduler-insecure", false, "let --scheduler-address have the credentials without a look at its certificate")
}

// check returns an error about flags that are not legal.
func (o *options) check() error {
	if !slices.Contains(colours, o.colour) {
		return usage("--color: %q, legal are %s", o.colour, strings.Join(colours, ", "))
	}
	if err := o.scheduler.Check(); err != nil {
		return usage("%w", err)
	}
	return nil
}

// coloured reports whether answers have colours.
func (o *options) coloured() bool {
	if o.colour != "auto" {
		return o.colour == "always"
	}
	return o.streams.Terminal && o.streams.Env("NO_COLOR") == "" && o.streams.Env("TERM") != "dumb"
}

// kubeconfigs reads the kubeconfig.
func (o *options) kubeconfigs() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &o.overrides)
}

// namespace returns the namespace of the flag, else that of the kubeconfig. A snapshot from a file does not need the kubeconfig.
func (o *options) namespace() string {
	if name, _, err := o.kubeconfigs().Namespace(); err == nil && name != "" {
		return name
	}
	return "default"
}

// line starts to say what takes its time, unless nobody looks.
func (o *options) line() *progress.Line {
	if o.quiet || !o.streams.ErrsTerminal {
		return progress.Start(nil)
	}
	return progress.Start(o.streams.Errs)
}

// raw returns the bytes of the snapshot.
func (o *options) raw(ctx context.Context, step connection.Step) ([]byte, error) {
	switch o.file {
	case "":
		config, err := o.kubeconfigs().ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("read kubeconfig: %w", err)
		}
		return connection.Snapshot(ctx, config, o.scheduler, step)
	case "-":
		step("reading standard input")
		raw, err := io.ReadAll(o.streams.In)
		if err != nil {
			return nil, fmt.Errorf("read standard input: %w", err)
		}
		return raw, nil
	}
	step("reading " + o.file)
	raw, err := os.ReadFile(o.file)
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return raw, nil
}

// read returns the snapshot, checked.
func (o *options) read(ctx context.Context, line *progress.Line) (*snapshot.Snapshot, []byte, error) {
	raw, err := o.raw(ctx, line.Step)
	if err != nil {
		return nil, nil, err
	}
	line.Step("checking the snapshot")
	s, err := snapshotjson.Read(raw)
	if err != nil {
		return nil, nil, fmt.Errorf("%w; a newer kubectl tandem may know this form", err)
	}
	harmless(s, raw)
	return s, raw, nil
}
