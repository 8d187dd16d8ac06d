package traces

import (
	"fmt"
	"io"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// OpenbNodes reads a node list of openb (Alibaba cluster-trace-gpu-v2023), whose columns OpenbNodeList names. A node
// has 0 to 64 GPUs and some CPU and memory; a list without any GPU is an error, since all shares of it would be shares
// of zero.
func OpenbNodes(r io.Reader, file string) ([]Host, error) {
	t, err := readAs(r, file, OpenbNodeList)
	if err != nil {
		return nil, err
	}
	return t.Hosts, nil
}

// OpenbPods reads a pod list of openb, whose columns OpenbPodList names: num_gpu whole GPUs of gpu_milli 1000, or one GPU
// of which gpu_milli is a share, or none. Lists without times give pods that are there at the start and stay.
func OpenbPods(r io.Reader, file string) ([]Job, error) {
	t, err := readAs(r, file, OpenbPodList)
	if err != nil {
		return nil, err
	}
	return t.Jobs, nil
}

func openbNode(t *csvtable.Table, all *Trace) {
	h := Host{Name: t.Text("sn"), Line: t.Line(), Room: room(t, 1), Devices: int(t.Whole("gpu", 0, MaxDevices))}
	t.Unique("sn", h.Name, "name")
	if h.Model = t.TextOr("model"); (h.Model == "") != (h.Devices == 0) {
		t.Fail("model", fmt.Sprintf("a name if, and only if, there are GPUs; gpu is %d", h.Devices))
	}
	all.Hosts = append(all.Hosts, h)
}

// openbCapacity: there is at least one GPU.
func openbCapacity(t *csvtable.Table, all *Trace) {
	for i := range all.Hosts {
		if all.Hosts[i].Devices > 0 {
			return
		}
	}
	t.Refuse("gpu", "0 in all rows", "at least one GPU")
}

func openbPod(t *csvtable.Table, all *Trace) {
	j := job(t, t.Text("name"))
	t.Unique("name", j.Name, "name")
	j.Host = room(t, 0)
	j.Devices = int(t.Whole("num_gpu", 0, MaxDevices))
	j.Compute = vgpu.MilliGPU(t.Whole("gpu_milli", 0, int64(vgpu.WholeGPU)))
	switch {
	case j.Devices == 0 && j.Compute != 0:
		t.Fail("gpu_milli", "0, since num_gpu is 0")
	case j.Devices == 1 && j.Compute == 0:
		t.Fail("gpu_milli", "1 to 1000, since num_gpu is 1")
	case j.Devices > 1 && j.Compute != vgpu.WholeGPU:
		t.Fail("gpu_milli", fmt.Sprintf("1000, since num_gpu is %d", j.Devices))
	}
	j.Models = models(t, "gpu_spec")
	if j.Devices == 0 && j.Models != nil {
		t.Fail("gpu_spec", "nothing, since num_gpu is 0")
	}
	j.Class = t.TextOr("qos")
	j.Arrive, j.Duration = life(t)
	all.Jobs = append(all.Jobs, j)
}

// job returns a job of one worker that has a name in the file.
func job(t *csvtable.Table, name string) Job {
	return Job{Name: name, Origin: name, Line: t.Line(), Workers: 1}
}

// nameless returns a job of the trace's own numbering.
func nameless(t *csvtable.Table) Job { return job(t, fmt.Sprintf("job-%06d", t.Rows()-1)) }

// gang gives the job so many workers of one whole GPU each.
func gang(t *csvtable.Table, j *Job, column string) {
	j.Workers, j.Devices, j.Compute = int(t.Whole(column, 1, MaxWorkers)), 1, vgpu.WholeGPU
}
