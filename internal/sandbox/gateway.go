package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// copied is a module that the gateway's build uses in a changed copy. The copy is made from the module cache.
type copied struct {
	module, version string
	// to is the directory in the gateway's module, as the replace of its go.mod has it.
	to string
	// without are directories that the copy leaves out.
	without []string
	// adds are files of tools/gateway, by their place in the copy.
	adds map[string]string
}

// copies are what the modules of the gateway lack. Lego, which asks for certificates, imports providers of DNS whose modules cannot all be
// downloaded. Traefik's fork of go-http-auth cannot be downloaded; it is the original with two more
// functions and a go.mod.
func copies() []copied {
	return []copied{
		{
			module: "github.com/go-acme/lego/v5", version: "v5.4.1", to: "lego", without: []string{"providers/dns", "cmd", "e2e"},
			adds: map[string]string{"providers/dns/dns.go": "dns/dns.go"},
		},
		{
			module: "github.com/abbot/go-http-auth", version: "v0.4.0", to: "httpauth",
			adds: map[string]string{"fork.go": "auth/fork.go", "go.mod": "auth/go.mod"},
		},
	}
}

// completed returns the builder of the gateway, which builds in a copy of its module: there the modules lie that the go.mod replaces.
func completed(b *builder) *builder {
	source := b.dir
	b.dir = filepath.Join(b.out, "module")
	b.prepare = func(ctx context.Context) error {
		if err := os.RemoveAll(b.dir); err != nil {
			return fmt.Errorf("copy module %s: %w", b.name, err)
		}
		if err := os.CopyFS(b.dir, os.DirFS(source)); err != nil {
			return fmt.Errorf("copy module %s: %w", b.name, err)
		}
		for _, c := range copies() {
			if err := c.make(ctx, source, b.out, filepath.Join(b.dir, c.to)); err != nil {
				return fmt.Errorf("copy module %s: %w", c.module, err)
			}
		}
		return nil
	}
	return b
}

// make makes the copy. Outside is a directory without a go.mod, where no replace hides the module that is downloaded.
func (c *copied) make(ctx context.Context, source, outside, to string) error {
	raw, err := goCommand(ctx, outside, "mod", "download", "-json", c.module+"@"+c.version).Output()
	if err != nil {
		return withStderr(err)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(raw, &found); err != nil {
		return err
	}
	if err := os.CopyFS(to, os.DirFS(found.Dir)); err != nil {
		return err
	}
	for _, dir := range c.without {
		if err := os.RemoveAll(filepath.Join(to, dir)); err != nil {
			return err
		}
	}
	for place, file := range c.adds {
		content, err := os.ReadFile(filepath.Join(source, file))
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, place)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, place), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}
