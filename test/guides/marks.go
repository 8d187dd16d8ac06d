package guides

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// needs are what commands may need that no test has.
var needs = []string{
	"a GPU", "a cluster", "a browser", "Prometheus", "another product", "minutes", "measurements",
}

// verdict is what the mark of a block says.
type verdict struct {
	run  bool
	with map[string]string // what stands in for words such as NODE
}

// judge reads the mark of a block of commands. The comment stands above the block:
//
//	<!-- run -->                        this package runs it
//	<!-- run: NODE=gpu-1 -->            this package runs it with gpu-1 in place of NODE
//	<!-- tested: test/demo TestX -->    the test TestX of that package does the same, or `make demo`
//	<!-- needs: a GPU -->               no test can run it
func judge(root string, b *block) (verdict, error) {
	kind, rest, _ := strings.Cut(b.mark, ":")
	rest = strings.TrimSpace(rest)
	switch kind {
	case "run":
		v := verdict{run: true, with: map[string]string{}}
		for _, pair := range strings.Fields(rest) {
			name, value, ok := strings.Cut(pair, "=")
			if !ok {
				return v, fmt.Errorf("%s: run: %q is not such as NODE=gpu-1", b.at(), pair)
			}
			v.with[name] = value
		}
		return v, nil
	case "tested":
		return verdict{}, tested(root, b, rest)
	case "needs":
		if !slices.Contains(needs, rest) {
			return verdict{}, fmt.Errorf("%s: needs %q: legal are %s", b.at(), rest, strings.Join(needs, ", "))
		}
		return verdict{}, nil
	}
	return verdict{}, fmt.Errorf("%s: nothing says how these commands are tested: put <!-- run -->, <!-- tested: PACKAGE TEST --> or <!-- needs: … --> above the block:\n%s", b.at(), b.text)
}

// targets are lines of the Makefile, which .ci/run runs.
var target = regexp.MustCompile(`(?m)^([a-z0-9-]+):`)

// tested checks that the named test, or target of the Makefile, exists.
func tested(root string, b *block, by string) error {
	if name, isTarget := strings.CutPrefix(by, "make "); isTarget {
		raw, err := os.ReadFile(filepath.Join(root, "Makefile"))
		if err != nil {
			return err
		}
		for _, m := range target.FindAllStringSubmatch(string(raw), -1) {
			if m[1] == name {
				return nil
			}
		}
		return fmt.Errorf("%s: the Makefile has no target %s", b.at(), name)
	}
	dir, test, ok := strings.Cut(by, " ")
	if !ok {
		return fmt.Errorf("%s: tested: %q is not a package and a test", b.at(), by)
	}
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if strings.Contains(string(raw), "\nfunc "+test+"(t *testing.T)") {
			return nil
		}
	}
	return fmt.Errorf("%s: the package %s has no test %s", b.at(), dir, test)
}
