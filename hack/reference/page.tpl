{{- define "gvList" -}}
{{- range . }}{{ template "gvDetails" . }}{{ end -}}
{{- end -}}

{{- define "gvDetails" -}}
# {{ .GroupVersionString }}

{{ .Doc }}

`make generate` writes this page from the comments of the Go types.
{{ $gv := . }}
{{- range .SortedKinds }}
* {{ $gv.TypeForKind . | markdownRenderTypeLink }}
{{- end }}
{{- range .SortedTypes }}
{{- template "type" . }}
{{- end }}
{{ end -}}

{{- define "type" -}}
{{- if markdownShouldRenderType . }}

## {{ .Name }}

{{ .Doc }}
{{- if .References }}

Used in: {{ range $i, $t := .SortedReferences }}{{ if $i }}, {{ end }}{{ if markdownShouldRenderType $t }}{{ markdownRenderTypeLink $t }}{{ else }}{{ $t.Name }}{{ end }}{{ end }}.
{{- end }}
{{- if .Members }}

| field | type | meaning | bounds of the schema |
|---|---|---|---|
{{- if .GVK }}
| `apiVersion` | string | `{{ .GVK.Group }}/{{ .GVK.Version }}` | |
| `kind` | string | `{{ .GVK.Kind }}` | |
{{- end }}
{{- range .Members }}
| `{{ .Name }}` | {{ markdownRenderType .Type }} | {{ template "type_members" . }} | {{ range .Validation }}{{ if not (hasSuffix ": {}" .) }}`{{ . | replace "`" "" | replace "|" "\\|" }}` {{ end }}{{ end }}|
{{- end }}
{{- end }}
{{- if .EnumValues }}

| value | meaning |
|---|---|
{{- range .EnumValues }}
| `{{ .Name }}` | {{ template "text" .Doc }} |
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "type_members" -}}
{{- if eq .Name "metadata" -}}
The object's metadata, as of all objects of Kubernetes.
{{- else -}}
{{ template "text" .Doc }}
{{- end -}}
{{- end -}}

{{- define "text" -}}
{{ . | replace "\n" " " | replace "|" "\\|" | trim }}
{{- end -}}
