package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/picture"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Map is the picture of a cluster at one moment; its JSON is that of vgpu.Map.
type Map struct{ vgpu.Map }

// Table draws a line per device with the slices to scale, and lists the pods that wait with the reasons.
func (m Map) Table(w io.Writer) error {
	var b strings.Builder
	at := time.Duration(m.AtSeconds * float64(time.Second))
	fmt.Fprintf(&b, "after %v\n", at)
	for i := range m.Nodes {
		picture.Paint(nil).Node(&b, &m.Nodes[i])
	}
	fmt.Fprintf(&b, "\nwaiting: %d\n", len(m.Pending))
	for _, p := range m.Pending {
		since := time.Duration(p.SinceSeconds * float64(time.Second))
		who := p.Pod
		if p.Members > 0 {
			who = fmt.Sprintf("gang %s of %d", p.Pod, p.Members)
		}
		fmt.Fprintf(&b, "  %s, since %v: %s\n", who, since, p.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
