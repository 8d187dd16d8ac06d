package gpushare

import (
	"os"
	"testing"

	"github.com/tandem-gpu/tandem/test/bubble"
	logs "github.com/tandem-gpu/tandem/test/silent"
)

func TestMain(m *testing.M) {
	bubble.Prepare()
	logs.Logs()
	os.Exit(m.Run())
}
