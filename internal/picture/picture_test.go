package picture_test

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/picture"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Colours change nothing but the colours, and each part has its own.
func TestPaint(t *testing.T) {
	n := vgpu.MapNode{Name: "n1", Problem: "cordoned", Devices: []vgpu.MapDevice{
		{Name: "g0", Model: "A100", Slots: 10, Healthy: true, Slices: []vgpu.MapSlice{{To: 4, Pod: "a/train"}, {From: 4, To: 7, Pod: "a/next", Held: true}}},
		{Name: "g1", Model: "A100", Slots: 10, Reason: "XID79"},
	}}
	plain, painted := draw(nil, &n), draw(func(k picture.Kind, text string) string { return "<" + string(rune('0'+int(k))) + text + ">" }, &n)
	stripped := strings.NewReplacer("<0", "", "<1", "", "<2", "", "<3", "", "<4", "", ">", "").Replace(painted)
	if stripped != plain {
		t.Errorf("without its colours the picture is\n%s, want\n%s", stripped, plain)
	}
	for _, want := range []string{"<0n1>", "<1a/train ", "<2(a/next) ", "<3·····", "<4sick: XID79>", "<4cordoned>"} {
		if !strings.Contains(painted, want) {
			t.Errorf("the picture has no %s:\n%s", want, painted)
		}
	}
}

func draw(p picture.Paint, n *vgpu.MapNode) string {
	var b strings.Builder
	p.Node(&b, n)
	return b.String()
}
