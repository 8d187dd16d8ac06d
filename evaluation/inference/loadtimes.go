package inference

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
)

// AlibabaLoadTimes has how long Alibaba's pods loaded a model: timestamp_anon, value (milliseconds), container_ip.
const AlibabaLoadTimes csvtable.Format = "alibaba-load-times"

var loadTimeColumns = []string{"timestamp_anon", "value", "container_ip"}

var loadTimeSchemas = []csvtable.Schema[[]time.Duration]{
	{Format: AlibabaLoadTimes, Needs: loadTimeColumns, Only: loadTimeColumns, Row: loadTimeRow},
}

// mostLoadMillis bounds a load time, to an hour.
const mostLoadMillis = 3_600_000

func loadTimeRow(t *csvtable.Table, all *[]time.Duration) {
	millis := t.Decimal("value", mostLoadMillis, "milliseconds")
	*all = append(*all, time.Duration(millis*float64(time.Millisecond)))
}

// ReadLoadTimes reads how long models load. An error is a *csvtable.Error, or one about opening the file.
func ReadLoadTimes(path string) ([]time.Duration, error) { return read(path, loadTimeSchemas) }
