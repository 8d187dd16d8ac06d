package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// At returns the name under which Tools has a program of Kubernetes in a version, as kubelet@1.35.4; an empty version is that
// of tools/controlplane, which is the program's own name.
func At(program, version string) string {
	if version == "" {
		return program
	}
	return program + "@" + version
}

// releasePattern is what the version of a program looks like, with or without the v of tags.
var releasePattern = regexp.MustCompile(`^v?1\.(\d{1,3})\.\d{1,3}$`)

// release is a version of Kubernetes whose programs come from a generated module in the cache.
type release struct{ version, minor string }

// parseRelease reads a version; own reports whether tools/controlplane has it.
func parseRelease(raw string) (r release, own bool, err error) {
	match := releasePattern.FindStringSubmatch(raw)
	if match == nil {
		return release{}, false, fmt.Errorf("read version %q of Kubernetes: it must be a whole one, for example 1.35.4", raw)
	}
	r = release{version: "v" + strings.TrimPrefix(raw, "v"), minor: match[1]}
	return r, r.version == kubernetesVersion, nil
}

// staging returns the version of the modules that Kubernetes publishes beside itself: v0.35.4 for v1.35.4.
func (r release) staging() string { return "v0" + strings.TrimPrefix(r.version, "v1") }

// builder returns what builds programs of the release.
func (r release) builder(ctx context.Context, cache string) (*builder, error) {
	args := []string{"-mod=mod", stamp(r.version, r.minor)}
	env, err := goCommand(ctx, "", "env", "GOVERSION", "GOOS", "GOARCH").Output()
	if err != nil {
		return nil, fmt.Errorf("ask Go for its version: %w", withStderr(err))
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s%q", env, args))
	name := "kubernetes-" + r.version
	out := filepath.Join(cache, "tools", name+"-"+hex.EncodeToString(key[:])[:12])
	b := &builder{
		name: name, dir: filepath.Join(out, "module"), out: out, packages: packages(), progress: os.Stderr,
		mod: module{args: args, firstTime: "5 to 10 minutes a program on two cores"},
	}
	b.prepare = func(ctx context.Context) error { return r.generate(ctx, b.dir) }
	return b, nil
}

// generate writes the go.mod for the build of the programs, unless it is there. The go.mod has the contents of the
// release's own one, with the published modules in place of those that lie beside it in Kubernetes' repository.
func (r release) generate(ctx context.Context, dir string) error {
	path := filepath.Join(dir, "go.mod")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make module of Kubernetes %s: %w", r.version, err)
	}
	raw, err := goCommand(ctx, dir, "list", "-mod=mod", "-m", "-json", "k8s.io/kubernetes@"+r.version).Output()
	if err != nil {
		return fmt.Errorf("find Kubernetes %s: %w", r.version, withStderr(err))
	}
	var found struct{ GoMod string }
	if err := json.Unmarshal(raw, &found); err != nil {
		return fmt.Errorf("find Kubernetes %s: %w", r.version, err)
	}
	upstream, err := goCommand(ctx, dir, "mod", "edit", "-json", found.GoMod).Output()
	if err != nil {
		return fmt.Errorf("read go.mod of Kubernetes %s: %w", r.version, withStderr(err))
	}
	text, err := r.module(upstream)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("make module of Kubernetes %s: %w", r.version, err)
	}
	return nil
}

// module returns a go.mod that requires the release, given the release's own as `go mod edit -json` prints it.
func (r release) module(upstream []byte) ([]byte, error) {
	type version struct{ Path, Version string }
	var file struct {
		Go      string
		Godebug []struct{ Key, Value string }
		Replace []struct{ Old, New version }
	}
	if err := json.Unmarshal(upstream, &file); err != nil {
		return nil, fmt.Errorf("read go.mod of Kubernetes %s: %w", r.version, err)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "module tandem.invalid/kubernetes\n\ngo %s\n\n", file.Go)
	for _, g := range file.Godebug {
		fmt.Fprintf(&b, "godebug %s=%s\n\n", g.Key, g.Value)
	}
	fmt.Fprintf(&b, "require k8s.io/kubernetes %s\n\n", r.version)
	replaced := 0
	for _, replace := range file.Replace {
		if strings.HasPrefix(replace.New.Path, "./staging/") {
			fmt.Fprintf(&b, "replace %s => %[1]s %s\n", replace.Old.Path, r.staging())
			replaced++
		}
	}
	if replaced == 0 {
		return nil, errors.New("read go.mod of Kubernetes " + r.version + ": it replaces no module of its own repository, as those up to 1.37 do")
	}
	return b.Bytes(), nil
}
