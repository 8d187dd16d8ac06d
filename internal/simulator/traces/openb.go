package traces

import (
	"fmt"
	"io"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// OpenbNodes reads a node list of openb (Alibaba cluster-trace-gpu-v2023), whose columns OpenbNodeList names. A node has 0
// to 64 GPUs and some CPU and memory; a list without any GPU is refused, since all shares of it would be shares of zero.
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

func openbNode(t *table, all *Trace) {
	h := Host{Name: t.text("sn"), Line: t.line(), Room: t.room(1), Devices: int(t.whole("gpu", 0, maxDevices))}
	t.unique("sn", h.Name, "name")
	if h.Model = t.textOr("model"); (h.Model == "") != (h.Devices == 0) {
		t.fail("model", fmt.Sprintf("a name if, and only if, there are GPUs; gpu is %d", h.Devices))
	}
	all.Hosts = append(all.Hosts, h)
}

// openbCapacity: there is at least one GPU.
func openbCapacity(t *table, all *Trace) {
	for i := range all.Hosts {
		if all.Hosts[i].Devices > 0 {
			return
		}
	}
	t.err = &Error{File: t.file, Column: "gpu", Value: "0 in all rows", Legal: "at least one GPU"}
}

func openbPod(t *table, all *Trace) {
	j := t.job(t.text("name"))
	t.unique("name", j.Name, "name")
	j.Host = t.room(0)
	j.Devices = int(t.whole("num_gpu", 0, maxDevices))
	j.Compute = vgpu.MilliGPU(t.whole("gpu_milli", 0, int64(vgpu.WholeGPU)))
	switch {
	case j.Devices == 0 && j.Compute != 0:
		t.fail("gpu_milli", "0, since num_gpu is 0")
	case j.Devices == 1 && j.Compute == 0:
		t.fail("gpu_milli", "1 to 1000, since num_gpu is 1")
	case j.Devices > 1 && j.Compute != vgpu.WholeGPU:
		t.fail("gpu_milli", fmt.Sprintf("1000, since num_gpu is %d", j.Devices))
	}
	j.Models = t.models("gpu_spec")
	if j.Devices == 0 && j.Models != nil {
		t.fail("gpu_spec", "nothing, since num_gpu is 0")
	}
	j.Class = t.textOr("qos")
	j.Arrive, j.Duration = t.life()
	all.Jobs = append(all.Jobs, j)
}

// job returns a job of one worker that has a name in the file.
func (t *table) job(name string) Job {
	return Job{Name: name, Origin: name, Line: t.line(), Workers: 1}
}

// nameless returns a job of the trace's own numbering.
func (t *table) nameless() Job { return t.job(fmt.Sprintf("job-%06d", t.rows-1)) }

// gang gives the job so many workers of one whole GPU each.
func (t *table) gang(j *Job, column string) {
	j.Workers, j.Devices, j.Compute = int(t.whole(column, 1, maxWorkers)), 1, vgpu.WholeGPU
}
