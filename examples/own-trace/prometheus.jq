# Makes a list of jobs for the simulator out of an answer of Prometheus; docs/guides/traces.md has the query.
["namespace", "name", "submitted", "duration_seconds", "gpus"],
(.data.result | group_by([.metric.namespace, .metric.pod])[]
  | (map({(.metric.column): (.value[1] | tonumber)}) | add) as $pod
  | select($pod.gpus and $pod.submitted)
  | [.[0].metric.namespace, .[0].metric.pod, $pod.submitted,
     (if $pod.ended and $pod.started then $pod.ended - $pod.started else "" end), $pod.gpus])
| @csv
