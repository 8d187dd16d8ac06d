// Package dist builds the folder with everything of a release, checks such a folder, and pushes its images to a registry.
package dist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Release is what to build.
type Release struct {
	// Root is the repository.
	Root string
	// Version is the tag of the release, such as v0.1.0.
	Version string
	// Registry is put before the names of the images in the manifests and in the chart, such as registry.example.com/team; "" leaves
	// the names without one.
	Registry string
	// Platforms are those to build for, such as linux/arm64.
	Platforms []Platform
	// Revision is the commit, with +dirty where the tree differs from it.
	Revision string
	// Time is that of the commit. All files have it.
	Time time.Time
}

// Platform is an operating system and an architecture in Go's words.
type Platform struct{ OS, Architecture string }

func (p Platform) String() string { return p.OS + "/" + p.Architecture }

// imagePlatforms are those of the images, clientPlatforms those of kubectl-tandem.
var (
	imagePlatforms  = []Platform{{"linux", "amd64"}, {"linux", "arm64"}}
	clientPlatforms = []Platform{{"darwin", "amd64"}, {"darwin", "arm64"}, {"linux", "amd64"}, {"linux", "arm64"}, {"windows", "amd64"}}
)

// client is the plugin of kubectl, agent the program that calls the driver's library through the C library.
const (
	client = "kubectl-tandem"
	agent  = "device-plugin"
)

// images are the programs that run in containers. agent alone runs as root.
var images = []string{"activator", "controller", agent, "scheduler", "shadow"}

// ParsePlatforms reads a list such as linux/amd64,linux/arm64; "" means all.
func ParsePlatforms(list string) ([]Platform, error) {
	if list == "" {
		return clientPlatforms, nil
	}
	words := strings.Split(list, ",")
	platforms := make([]Platform, 0, len(words))
	for _, word := range words {
		system, architecture, _ := strings.Cut(word, "/")
		p := Platform{system, architecture}
		if !slices.Contains(clientPlatforms, p) {
			return nil, fmt.Errorf("read PLATFORMS: %q is no platform of a release; they are %v", word, clientPlatforms)
		}
		platforms = append(platforms, p)
	}
	return platforms, nil
}

// versionPattern is what Helm and krew take as a version, with the v of tags.
var versionPattern = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+([.-][0-9A-Za-z]+)*)?$`)

// registryPattern is a host with an optional port, and folders.
var registryPattern = regexp.MustCompile(`^[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*$`)

// Describe fills in what git knows, and refuses what cannot be released.
func (r *Release) Describe(ctx context.Context, dirty bool) error {
	if !versionPattern.MatchString(r.Version) {
		return fmt.Errorf("read VERSION: %q is no version of a release: write one such as v0.1.0 or v0.1.0-rc.1", r.Version)
	}
	if r.Registry != "" && !registryPattern.MatchString(r.Registry) {
		return fmt.Errorf("read REGISTRY: %q is no address of a registry: write one such as registry.example.com/team, without a slash at the end", r.Registry)
	}
	revision, err := r.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return err
	}
	seconds, err := r.git(ctx, "show", "-s", "--format=%ct", "HEAD")
	if err != nil {
		return err
	}
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("read the time of commit %s: %w", revision, err)
	}
	changes, err := r.git(ctx, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		if !dirty {
			return fmt.Errorf("build release %s: files differ from commit %s; commit or stash them, or set DIRTY=1 for a trial:\n%s", r.Version, revision, changes)
		}
		revision += "+dirty"
	}
	r.Revision, r.Time = revision, time.Unix(at, 0).UTC()
	return nil
}

func (r *Release) git(ctx context.Context, args ...string) (string, error) {
	out, err := r.command(ctx, nil, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("ask git for the commit: %w", withStderr(err))
	}
	return strings.TrimSpace(string(out)), nil
}

// command runs in the repository. The version is stamped by hack/version.sh, which reads TANDEM_VERSION.
func (r *Release) command(ctx context.Context, env []string, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = r.Root
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "TANDEM_VERSION="+r.Version, "CGO_CFLAGS=-Wno-deprecated-declarations")
	cmd.Env = append(cmd.Env, env...)
	return cmd
}

func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// cross is what the agent needs for another architecture: a C compiler, and the libraries of that architecture.
type cross struct{ compiler, libraries string }

var crosses = map[string]cross{
	"arm64": {"aarch64-linux-gnu-gcc", "/usr/aarch64-linux-gnu/lib"},
	"amd64": {"x86_64-linux-gnu-gcc", "/usr/x86_64-linux-gnu/lib"},
}

// native reports whether the platform is this machine's.
func (p Platform) native() bool {
	return p.OS == "linux" && p.Architecture == runtime.GOARCH && runtime.GOOS == "linux"
}

// missing says why the program cannot be built for the platform; "" where it can.
func missing(program string, p Platform) string {
	if program != agent || p.native() {
		return ""
	}
	c := crosses[p.Architecture]
	if _, err := exec.LookPath(c.compiler); err != nil {
		return fmt.Sprintf("the image of %s has no %s: this machine has no C compiler %s (Debian: gcc-%s)", agent, p, c.compiler,
			strings.TrimSuffix(c.compiler, "-gcc"))
	}
	return ""
}

// binaries builds the programs of all platforms below the folder, and returns what it had to leave out.
func (r *Release) binaries(ctx context.Context, folder string, say func(string)) (omitted []string, err error) {
	flags, err := r.command(ctx, nil, "hack/version.sh", "ldflags").Output()
	if err != nil {
		return nil, fmt.Errorf("ask for the version: %w", withStderr(err))
	}
	for _, p := range r.Platforms {
		programs := []string{client}
		if slices.Contains(imagePlatforms, p) {
			programs = append(slices.Clone(images), client)
		}
		for _, program := range programs {
			if why := missing(program, p); why != "" {
				omitted = append(omitted, why)
				say(why)
				continue
			}
			say(fmt.Sprintf("build %s for %s", program, p))
			if err := r.compile(ctx, program, p, binary(folder, p, program), strings.TrimSpace(string(flags))); err != nil {
				return nil, err
			}
		}
	}
	return omitted, nil
}

// binary is the path of a program.
func binary(folder string, p Platform, program string) string {
	name := program
	if program != client {
		name = "tandem-" + program
	}
	if p.OS == "windows" {
		name += ".exe"
	}
	return filepath.Join(folder, p.OS+"_"+p.Architecture, name)
}

// compile builds one program. Neither paths of this machine nor the build's own identifiers are in it.
func (r *Release) compile(ctx context.Context, program string, p Platform, output, flags string) error {
	env := []string{"GOOS=" + p.OS, "GOARCH=" + p.Architecture, "CGO_ENABLED=0"}
	if program == agent {
		env[2] = "CGO_ENABLED=1"
		if !p.native() {
			env = append(env, "CC="+crosses[p.Architecture].compiler)
		}
	}
	cmd := r.command(ctx, env, "go", "build", "-trimpath", "-ldflags", "-s -w -buildid= "+flags, "-o", output, "./cmd/"+program)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s for %s: %w\n%s", program, p, err, out)
	}
	return nil
}
