package gpugang

import (
	"os"
	"testing"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/silent"
)

func TestMain(m *testing.M) {
	bubble.Prepare()
	silent.Logs()
	os.Exit(m.Run())
}
