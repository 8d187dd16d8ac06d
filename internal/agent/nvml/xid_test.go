package nvml

import (
	"slices"
	"testing"
)

func TestClassOf(t *testing.T) {
	for class, xids := range map[Class][]uint64{
		Information:  {37, 44, 63, 92, 93, 106, 108, 121, 137, 154},
		Application:  {11, 13, 25, 31, 43, 45, 68, 69},
		Contained:    {8, 32, 39, 60, 71, 80, 89, 94, 98, 105, 109, 126, 135, 139, 144, 150},
		Reset:        {46, 48, 61, 62, 64, 74, 95, 110, 119, 120, 136, 140, 143, 155, 156, 158},
		Reboot:       {79, 151},
		Unclassified: {0, 1, 54, 78, 142, 162, 171, 172, 999, 1 << 40},
	} {
		for _, xid := range xids {
			if got := ClassOf(xid); got != class {
				t.Errorf("XID %d is %s, want %s", xid, got, class)
			}
		}
		if !slices.Contains(Classes(), class) {
			t.Errorf("%s is no class", class)
		}
	}
}

func TestWhatClassesMean(t *testing.T) {
	for _, test := range []struct {
		class            Class
		critical, resets bool
	}{
		{Information, false, false},
		{Application, false, false},
		{Contained, true, false},
		{Unclassified, true, false},
		{Reset, true, true},
		{Reboot, true, true},
	} {
		if test.class.Critical() != test.critical || test.class.NeedsReset() != test.resets {
			t.Errorf("%s: critical %t, needs a reset %t", test.class, test.class.Critical(), test.class.NeedsReset())
		}
	}
}

// An error that NVIDIA's own device plugin ignores must not make a device sick here, but for 109, which the catalogue
// resets.
func TestApplicationErrorsOfTheDevicePlugin(t *testing.T) {
	for _, xid := range []uint64{13, 31, 43, 45, 68} {
		if ClassOf(xid).Critical() {
			t.Errorf("XID %d is critical", xid)
		}
	}
}
