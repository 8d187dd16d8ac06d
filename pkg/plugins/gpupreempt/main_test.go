package gpupreempt

import (
	"os"
	"testing"

	"github.com/tandem-gpu/tandem/test/silent"
)

func TestMain(m *testing.M) {
	silent.Logs()
	os.Exit(m.Run())
}
