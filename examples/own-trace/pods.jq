# Makes a list of jobs for the simulator out of pods: kubectl get pods -A -o json | jq -r -f pods.jq > pods.csv
# A GPU is one nvidia.com/gpu, or ten slots of tandem-gpu.io/vgpu. Pods that still run have no duration.
def cores: if . == null then 0 elif endswith("m") then (rtrimstr("m") | tonumber) / 1000 else tonumber end;
def gib: if . == null then 0 else
  capture("^(?<n>[0-9.]+)(?<u>[A-Za-z]*)$") | (.n | tonumber) *
  ({"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "Ki": 1024, "Mi": 1048576, "Gi": 1073741824, "Ti": 1099511627776}[.u]) / 1073741824
  end;
def total(f): [.spec.containers[].resources | f] | add;
["namespace", "name", "submitted", "duration_seconds", "gpus", "cpus", "memory_gib", "priority"],
(.items[]
  | ([.status.containerStatuses[]?.state.terminated.finishedAt // empty] | max) as $last
  | [.metadata.namespace, .metadata.name, .metadata.creationTimestamp,
     (if .status.phase == "Succeeded" or .status.phase == "Failed" then
        if $last and .status.startTime then ($last | fromdate) - (.status.startTime | fromdate) else 1 end
      else "" end),
     total((.limits["nvidia.com/gpu"] // "0" | tonumber) + (.limits["tandem-gpu.io/vgpu"] // "0" | tonumber) / 10),
     total(.requests.cpu | cores), total(.requests.memory | gib), (.spec.priority // 0)])
| @csv
