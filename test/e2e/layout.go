package e2e

import (
	"os"
	"path/filepath"
)

// layout is the folder of a run. All paths are absolute and the same inside and outside of the namespaces.
type layout struct{ root string }

// theLayout is fixed, so that a run finds the remains of an interrupted one.
func theLayout() layout { return layout{root: filepath.Join(os.TempDir(), "tandem-e2e")} }

func (l layout) path(elements ...string) string {
	return filepath.Join(append([]string{l.root}, elements...)...)
}

func (l layout) bin(name string) string   { return l.path("bin", name) }
func (l layout) fakes() string            { return l.path("fakes") }
func (l layout) state() string            { return l.path("gpus.json") }
func (l layout) devRoot() string          { return l.path("devroot") }
func (l layout) image(name string) string { return l.path("images", name+".tar") }
func (l layout) logs() string             { return l.path("log") }
func (l layout) kubelet() string          { return l.path("kubelet") }
func (l layout) controlPlane() string     { return l.path("controlplane") }
