package membership

import (
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// BenchmarkExtremes is what a gang's annotations of all 128 KiB that a pod may have cost to be read.
func BenchmarkExtremes(b *testing.B) {
	for name, value := range map[string]string{"commas": strings.Repeat(",", 127<<10), "levels": strings.Repeat("example.com/a,", 9000), "numbers": strings.Repeat("1,", 64<<10)} {
		for _, key := range []string{v1alpha1.AnnotationPreferredTopology, v1alpha1.AnnotationElasticWorkers} {
			annotations := map[string]string{key: value}
			b.Run("gang/"+strings.TrimPrefix(key, v1alpha1.Domain+"/")+"-of-127-KiB/"+name, func(b *testing.B) {
				for b.Loop() {
					_, _, _ = Topology(annotations) // errors are what the values are for
					_, _ = ElasticSizes(annotations, 1)
				}
			})
		}
	}
}
