{{/* The name of an image: tandem.image (list . "tandem-scheduler") */}}
{{- define "tandem.image" -}}
{{- $root := index . 0 -}}
{{- with $root.Values.images.registry }}{{ . }}/{{ end -}}
{{ index . 1 }}:{{ $root.Values.images.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{/* The configuration of the scheduler. Its comments are there as long as no value changes it. */}}
{{- define "tandem.schedulerConfig" -}}
{{- if .Values.scheduler.arguments -}}
{{- $config := .Files.Get "files/scheduler.yaml" | fromYaml -}}
{{- $arguments := .Values.scheduler.arguments -}}
{{- range $config.profiles -}}
{{- range .pluginConfig -}}
{{- $_ := set . "args" (mergeOverwrite (.args | default dict) (deepCopy (get $arguments .name | default dict))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- else -}}
{{- .Files.Get "files/scheduler.yaml" -}}
{{- end -}}
{{- end -}}

{{/* The configuration of the agents, likewise. */}}
{{- define "tandem.agentConfig" -}}
{{- if .Values.agent.configuration -}}
{{- $config := .Files.Get "files/agent.yaml" | fromYaml -}}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.agent.configuration)) -}}
{{- else -}}
{{- .Files.Get "files/agent.yaml" -}}
{{- end -}}
{{- end -}}
