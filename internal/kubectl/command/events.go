package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"

	"github.com/tandem-gpu/tandem/internal/kubectl/decisions"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
)

// eventful is the command with its flags.
type eventful struct {
	*options
	as         form
	everywhere bool
	follow     bool
	since      time.Duration
	filter     decisions.Filter
	told       decisions.Told
	client     kubernetes.Interface
}

// programs are the parts of Tandem that write events, beside the scheduler, whose name is a flag.
var programs = []string{"tandem-controller", "tandem-activator"}

// eventTypes are the values of --type.
var eventTypes = []string{v1.EventTypeNormal, v1.EventTypeWarning}

func (o *options) eventsCommand() *cobra.Command {
	e := &eventful{options: o}
	c := &cobra.Command{
		Use:   "events [KIND/NAME]",
		Short: "Shows what Tandem decided, and why",
		Long: `Shows what Tandem's scheduler and controller decided, and why: the events that they wrote in the namespace, the newest last.

It asks the API server with the rights of your kubeconfig. The API server keeps events for an hour, unless it is configured otherwise.
gang/NAME stands for the PodGroup of the name, and for what is said of the gang of other objects.`,
		Example: `  kubectl tandem events -n team-a
  kubectl tandem events -A --type Warning --since 10m
  kubectl tandem events gang/train --follow`,
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return e.run(ctx, args)
		},
	}
	e.as.addTo(c)
	c.Flags().BoolVarP(&e.everywhere, "all-namespaces", "A", false, "those of all namespaces")
	c.Flags().BoolVarP(&e.follow, "follow", "f", false, "go on with new ones until you press Ctrl-C")
	c.Flags().DurationVar(&e.since, "since", 0, "those of so much `time` until now; 0 is no bound")
	c.Flags().StringSliceVar(&e.filter.Reasons, "reason", nil, "`words` such as ElasticGrow or Preempted; several with commas")
	c.Flags().StringVar(&e.filter.Type, "type", "", "one type alone: "+strings.Join(eventTypes, ", "))
	// Registering fails without the flag only.
	_ = c.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(eventTypes, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("reason", completeReasons)
	return c
}

// completeReasons proposes reasons that are not there yet, after what is typed up to the last comma.
func completeReasons(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndex(typed, ",")+1]
	there := strings.Split(before, ",")
	var all []string
	for _, r := range decisions.Reasons() {
		if !slices.Contains(there, r.Name) {
			all = append(all, cobra.CompletionWithDesc(before+r.Name, r.What))
		}
	}
	return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// prepare checks the flags and makes the filter.
func (e *eventful) prepare(args []string) error {
	err := e.check()
	switch {
	case err != nil:
		return err
	case len(args) > 1:
		return usage("events takes one object, has %s; see kubectl tandem events --help", strings.Join(args, " "))
	case e.file != "":
		return usage("--snapshot: events asks the cluster and reads no snapshot")
	case e.since < 0:
		return usage("--since: %v, legal is 0 or more", e.since)
	case e.filter.Type != "" && !slices.Contains(eventTypes, e.filter.Type):
		return usage("--type: %q, legal are %s", e.filter.Type, strings.Join(eventTypes, ", "))
	case e.follow && e.as == yamlForm:
		return usage("-o yaml: with --follow legal are json, a line for each, and wide")
	}
	if len(args) == 1 {
		kind, name, both := strings.Cut(args[0], "/")
		if !both {
			kind, name = "", kind
		}
		if name == "" || strings.Contains(name, "/") || both && kind == "" {
			return usage("%q: legal are NAME and KIND/NAME, such as pod/train-0, job/train and gang/train", args[0])
		}
		e.filter.Kind, e.filter.Name = strings.ToLower(kind), name
	}
	e.filter.Components = append([]string{e.scheduler.Name}, programs...)
	if e.since > 0 {
		e.filter.After = time.Now().Add(-e.since)
	}
	return nil
}

func (e *eventful) run(ctx context.Context, args []string) error {
	if err := e.prepare(args); err != nil {
		return err
	}
	config, err := e.kubeconfigs().ClientConfig()
	if err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	if e.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	where := metav1.NamespaceAll
	if !e.everywhere {
		where = e.namespace()
	}
	line := e.line()
	line.Step("reading events")
	all, err := e.list(ctx, where)
	line.Close()
	if err != nil {
		return fmt.Errorf("list events: %w", err)
	}
	if err := e.print(all, where); err != nil || !e.follow {
		return err
	}
	return e.goOn(ctx, where)
}

// list returns the decisions that are there, the newest last.
func (e *eventful) list(ctx context.Context, namespace string) ([]decisions.Decision, error) {
	all := []decisions.Decision{}
	p := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return e.client.EventsV1().Events(namespace).List(ctx, o)
	})
	err := p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		if d, tell := e.tells(o); tell {
			all = append(all, d)
		}
		return nil
	})
	decisions.Sort(all)
	return all, err
}

// tells returns the decision of an event, and whether to tell it: the filter lets it through, and it was not told yet.
func (e *eventful) tells(o any) (decisions.Decision, bool) {
	event, ok := o.(*events.Event)
	if !ok {
		return decisions.Decision{}, false
	}
	d := decisions.Of(event)
	return d, e.filter.Lets(&d) && e.told.New(&d)
}

// print writes decisions.
func (e *eventful) print(all []decisions.Decision, where string) error {
	if e.as.forPrograms() && !e.follow {
		return e.as.write(e.streams.Out, map[string]any{"decisions": all})
	}
	if len(all) == 0 && e.as != jsonForm && !e.follow {
		in, more := "the namespace "+where, "; -A looks into all"
		if where == metav1.NamespaceAll {
			in, more = "any namespace", ""
		}
		_, err := fmt.Fprintf(e.streams.Errs, "no such decision is known in %s, and the API server forgets events after a while%s\n", in, more)
		return err
	}
	for i := range all {
		if err := e.tell(&all[i]); err != nil {
			return err
		}
	}
	return nil
}

// tell writes one decision.
func (e *eventful) tell(d *decisions.Decision) error {
	if e.as == jsonForm {
		return json.NewEncoder(e.streams.Out).Encode(d)
	}
	_, err := io.WriteString(e.streams.Out, d.Line(time.Now(), e.as == wide || e.everywhere)+"\n")
	return err
}

// goOn tells what is decided until the context ends. The informer lists anew where the API server has forgotten what happened since its last
// answer; goOn tells no decision again.
func (e *eventful) goOn(ctx context.Context, namespace string) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	client := e.client.EventsV1().Events(namespace)
	source := &cache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) },
		WatchFuncWithContext: client.Watch,
	}
	informer := cache.NewSharedInformer(source, &events.Event{}, 0)
	var once sync.Once
	tell := func(o any) {
		d, tells := e.tells(o)
		if !tells {
			return
		}
		if err := e.tell(&d); err != nil {
			once.Do(func() { stop(fmt.Errorf("write decision: %w", err)) })
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, UpdateFunc: func(_, o any) { tell(o) }})
	if err != nil {
		return fmt.Errorf("follow events: %w", err)
	}
	err = informer.SetWatchErrorHandlerWithContext(e.lost(stop))
	if err != nil {
		return fmt.Errorf("follow events: %w", err)
	}
	informer.RunWithContext(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// lost returns what to do where a connection ends. It says once what else than an end of the ordinary kind it was, and stops where asking again
// does not help.
func (e *eventful) lost(stop context.CancelCauseFunc) cache.WatchErrorHandlerWithContext {
	said := ""
	return func(ctx context.Context, _ *cache.Reflector, err error) {
		if apierrors.IsForbidden(err) {
			stop(fmt.Errorf("follow events: %w; --follow needs the rights to list and to watch events in events.k8s.io", err))
			return
		}
		ends := ctx.Err() != nil || errors.Is(err, io.EOF) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
		if text := err.Error(); !ends && text != said {
			said = text
			fmt.Fprintf(e.streams.Errs, "kubectl tandem: the connection is lost, and tried again: %s\n", wording.Plain(text))
		}
	}
}
