package sandbox

import (
	"context"
	"testing"

	"github.com/tandem-gpu/tandem/test/must"
)

// StartForTest starts a control plane that ends with the test; a failed test shows the ends of its logs. The test waits while as
// many run as may at once, unless it or a test around it has one already.
func StartForTest(t testing.TB, options Options) *ControlPlane {
	t.Helper()
	c, err := start(t.Context(), t.Name(), options)
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs(15))
		}
		c.Stop()
	})
	return c
}

// ProgramForTest returns the path of one of Tandem's programs (see Program) or ends the test.
func ProgramForTest(t testing.TB, name string) string {
	t.Helper()
	path, err := Program(name)
	must.OK(t, err)
	return path
}

// ApplyForTest applies manifests or ends the test.
func (c *ControlPlane) ApplyForTest(ctx context.Context, t testing.TB, manifests string) {
	t.Helper()
	must.OK(t, c.Apply(ctx, []byte(manifests)))
}
