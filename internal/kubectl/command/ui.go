package command

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/gpumap"
	"github.com/tandem-gpu/tandem/internal/gpumap/recording"
	"github.com/tandem-gpu/tandem/internal/kubectl/progress"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
)

// leastInterval is the shortest time between two questions: the scheduler makes at most one snapshot a second.
const leastInterval = time.Second

// keptBytes bounds the snapshots that are kept: an hour of those of 5,000 full nodes, one each half a minute.
const keptBytes = 300 << 20

// ui is the GPU map in a browser, as the flags say.
type ui struct {
	*options
	port     int
	interval time.Duration
	open     bool
}

func (o *options) uiCommand() *cobra.Command {
	u := &ui{options: o}
	c := &cobra.Command{
		Use:   "ui",
		Short: "Shows the GPU map in a browser",
		Long: `Shows the GPU map in a browser, until you press Ctrl-C.

The page is served on this machine alone, at an address that nobody can guess. The command asks the scheduler each --interval
with your credentials, so the page shows what you may see, and its slider goes back over the time that the command has run, up
to an hour. docs/guides/map.md says what the page shows.`,
		Example: `  kubectl tandem ui
  kubectl tandem ui --port 8080 --open=false
  kubectl tandem ui --snapshot now.json`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return u.run(ctx)
		},
	}
	c.Flags().IntVar(&u.port, "port", 0, "port of the page on this machine; 0 is a free one")
	c.Flags().DurationVar(&u.interval, "interval", 10*time.Second, "`time` from one question to the scheduler to the next, 1s or more")
	c.Flags().BoolVar(&u.open, "open", true, "open the page in a browser, where standard output is a terminal")
	return c
}

// run serves the page until the context ends. The first snapshot is there before the page is, so that what is missing for it is said here.
func (u *ui) run(ctx context.Context) error {
	if err := u.check(); err != nil {
		return err
	}
	switch {
	case u.interval < leastInterval:
		return usage("--interval: %v, legal is %v or more", u.interval, leastInterval)
	case u.port < 0 || u.port > 65535:
		return usage("--port: %d, legal are 0 to 65535", u.port)
	}
	line := u.line()
	s, raw, err := u.read(ctx, line)
	line.Close()
	if err != nil {
		return err
	}
	kept := recording.New(u.title(), u.file == "", keptBytes)
	if err := kept.Add(s.At, raw); err != nil {
		return err
	}
	listener, err := gpumap.Listen(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(u.port)), false)
	if err != nil {
		return fmt.Errorf("--port: %w", err)
	}
	secret := hex.EncodeToString(randomBytes())
	address := fmt.Sprintf("http://%s/%s/", listener.Addr(), secret)
	fmt.Fprintf(u.streams.Out, "The GPU map is at %s until you press Ctrl-C. People who know this address see there what you may see.\n", address)
	if u.open && u.streams.Terminal {
		if err := openBrowser(ctx, address); err != nil {
			fmt.Fprintf(u.streams.Errs, "kubectl tandem: no browser could be opened: %v; open the address yourself\n", err)
		}
	}
	if u.file == "" {
		go u.follow(ctx, kept)
	}
	return gpumap.Serve(ctx, listener, behind(secret, gpumap.Explaining(kept, wording.Brief)))
}

// title says what the page shows: the file, or the context of the kubeconfig.
func (u *ui) title() string {
	if u.file != "" {
		return "snapshot " + u.file
	}
	name := u.overrides.CurrentContext
	if raw, err := u.kubeconfigs().RawConfig(); name == "" && err == nil {
		name = raw.CurrentContext
	}
	return strings.TrimSpace("cluster " + name)
}

// follow asks for a snapshot each interval until the context ends. It says once that no answer comes, and why.
func (u *ui) follow(ctx context.Context, kept *recording.Recording) {
	quiet, said := progress.Start(nil), ""
	defer quiet.Close()
	ticker := time.NewTicker(u.interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		s, raw, err := u.read(ctx, quiet)
		if err == nil {
			err = kept.Add(s.At, raw)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != said:
			said = err.Error()
			fmt.Fprintf(u.streams.Errs, "kubectl tandem: the map stays as it is: %v\n", err)
		case err == nil && said != "":
			said = ""
			fmt.Fprintln(u.streams.Errs, "kubectl tandem: the map follows the scheduler again")
		}
	}
}

// randomBytes returns what nobody can guess.
func randomBytes() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return b
}

// behind serves a handler under a path that other users of this machine do not know.
func behind(secret string, h http.Handler) http.Handler {
	prefix := "/" + secret
	inside := http.StripPrefix(prefix, h)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, prefix+"/") {
			http.Error(w, "the map is at the address that kubectl tandem ui has printed", http.StatusNotFound)
			return
		}
		inside.ServeHTTP(w, r)
	})
}

// openers are the programs that open an address in the user's browser, by operating system.
var openers = map[string][]string{"darwin": {"open"}, "windows": {"rundll32", "url.dll,FileProtocolHandler"}}

// openBrowser starts the user's browser.
func openBrowser(ctx context.Context, address string) error {
	command, known := openers[runtime.GOOS]
	if !known {
		command = []string{"xdg-open"}
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return errors.New("there is no " + command[0])
	}
	return exec.CommandContext(ctx, path, append(command[1:], address)...).Start()
}
