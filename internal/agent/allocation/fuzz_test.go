package allocation

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// kubeletBlob returns a checkpoint as the kubelet writes it.
func kubeletBlob(t testing.TB, entries ...checkpoint.PodDevicesEntry) []byte {
	t.Helper()
	blob, err := checkpoint.New(entries, map[string][]string{v1alpha1.ResourceVGPU: {SlotID(fixture.G0, 0)}}).MarshalCheckpoint()
	must.OK(t, err)
	return blob
}

func response(t testing.TB, names ...string) []byte {
	t.Helper()
	r := &pluginapi.ContainerAllocateResponse{}
	for _, name := range names {
		r.CdiDevices = append(r.CdiDevices, &pluginapi.CDIDevice{Name: name})
	}
	raw, err := proto.Marshal(r)
	must.OK(t, err)
	return raw
}

func TestParseHoldings(t *testing.T) {
	ours := cdi.Qualified("0123456789abcdef")
	blob := kubeletBlob(t,
		checkpoint.PodDevicesEntry{PodUID: "u2", ContainerName: "a", ResourceName: "nvidia.com/gpu", DeviceIDs: checkpoint.DevicesPerNUMA{0: {"x"}}},
		checkpoint.PodDevicesEntry{PodUID: "u2", ContainerName: "b", ResourceName: v1alpha1.ResourceVGPU,
			DeviceIDs: checkpoint.DevicesPerNUMA{-1: {SlotID(fixture.G0, 10), SlotID(fixture.G0, 2)}}, AllocResp: response(t, "nvidia.com/gpu=0", ours)},
		checkpoint.PodDevicesEntry{PodUID: "u1", ContainerName: "c", ResourceName: v1alpha1.ResourceVGPU,
			// One device on two NUMA nodes stands under both.
			DeviceIDs: checkpoint.DevicesPerNUMA{0: {SlotID(fixture.G1, 1)}, 1: {SlotID(fixture.G1, 1)}}, AllocResp: response(t)},
	)
	got, err := parseHoldings(blob)
	must.OK(t, err)
	want := []Holding{
		{UID: "u1", Container: "c", IDs: []string{SlotID(fixture.G1, 1)}},
		{UID: "u2", Container: "b", IDs: []string{SlotID(fixture.G0, 2), SlotID(fixture.G0, 10)}, Name: "0123456789abcdef"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The parser answers or refuses any file; the holdings that it accepts are sorted and without repetitions.
func FuzzParseHoldings(f *testing.F) {
	f.Add(kubeletBlob(f))
	f.Add(kubeletBlob(f, checkpoint.PodDevicesEntry{
		PodUID: "u1", ContainerName: "main", ResourceName: v1alpha1.ResourceVGPU,
		DeviceIDs: checkpoint.DevicesPerNUMA{0: {SlotID(fixture.G0, 1), SlotID(fixture.G0, 0)}}, AllocResp: response(f, cdi.Qualified("0123456789abcdef")),
	}))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"","AllocResp":"AAAA"}],"RegisteredDevices":null},"Checksum":0}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, blob []byte) {
		list, err := parseHoldings(blob)
		if err != nil && list != nil {
			t.Errorf("an error and %d holdings", len(list))
		}
		for _, h := range list {
			if !slices.Equal(h.IDs, SlotSet(h.IDs)) {
				t.Errorf("slots %v are not in order", h.IDs)
			}
			if h.Name != "" {
				if _, ok := cdi.ParseQualified(cdi.Qualified(h.Name)); !ok {
					t.Errorf("name %q is none of ours", h.Name)
				}
			}
		}
	})
}

// A flipped bit anywhere in the kubelet's checkpoint is noticed, or changes nothing.
func TestParseHoldingsNoticesFlippedBits(t *testing.T) {
	blob := kubeletBlob(t, checkpoint.PodDevicesEntry{
		PodUID: "u1", ContainerName: "main", ResourceName: v1alpha1.ResourceVGPU,
		DeviceIDs: checkpoint.DevicesPerNUMA{0: {SlotID(fixture.G0, 1)}}, AllocResp: response(t, cdi.Qualified("0123456789abcdef")),
	})
	sound, err := parseHoldings(blob)
	must.OK(t, err)
	refused := 0
	for i := range blob {
		broken := slices.Clone(blob)
		broken[i] ^= 1
		got, err := parseHoldings(broken)
		if err != nil {
			refused++
			continue
		}
		if diff := cmp.Diff(sound, got); diff != "" {
			t.Errorf("byte %d: taken for sound (-want +got):\n%s", i, diff)
		}
	}
	if refused < len(blob)*9/10 {
		t.Errorf("%d of %d flipped bits were refused", refused, len(blob))
	}
}

// FuzzDecodeRecords: data that the parser of the agent's own checkpoint accepts can be written and read again
// unchanged.
func FuzzDecodeRecords(f *testing.F) {
	f.Add([]byte(`{"version":1,"checksum":"","data":{}}`))
	f.Add([]byte(`{"version":1,"checksum":"` + checksum([]byte(`{"names":{},"grants":{"u":{"pod":"a/b","assignment":"{}"}}}`)) +
		`","data":{"names":{},"grants":{"u":{"pod":"a/b","assignment":"{}"}}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		data, err := decodeRecords(raw)
		if err != nil {
			return
		}
		r, err := Open(t.TempDir())
		must.OK(t, err)
		if err := r.Update(func(d *Data) { *d = data }); err != nil {
			t.Skip("times outside of what JSON holds")
		}
		if again := r.Snapshot(); len(again.Grants) != len(data.Grants) || len(again.Names) != len(data.Names) {
			t.Errorf("read %+v, have %+v", data, again)
		}
	})
}

func TestRecordsSurviveTheProcess(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir)
	must.OK(t, err)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	must.OK(t, r.Allocated(map[string][]string{"aa": {SlotID(fixture.G0, 1), SlotID(fixture.G0, 0)}}, at))
	must.OK(t, r.Allocated(map[string][]string{"bb": {SlotID(fixture.G0, 0), SlotID(fixture.G0, 1)}}, at.Add(time.Second)))
	must.OK(t, r.Granted("u1", Grant{Pod: "a/b", Assignment: "{}"}))
	again, err := Open(dir)
	must.OK(t, err)
	if diff := cmp.Diff(r.Snapshot(), again.Snapshot()); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"bb", "aa"}, again.NamesFor([]string{SlotID(fixture.G0, 1), SlotID(fixture.G0, 0)})); diff != "" {
		t.Errorf("names for the slots, the latest first (-want +got):\n%s", diff)
	}
}
