package differential

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/watch"

	"github.com/tandem-gpu/tandem/test/silent"
)

func TestMain(m *testing.M) {
	silent.Logs()
	// client-go's clientset in memory panics when a watcher is this many events behind. The default is 100, and a busy machine reaches it.
	watch.DefaultChanSize = 10_000
	os.Exit(m.Run())
}
