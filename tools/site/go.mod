module github.com/tandem-gpu/tandem/tools/site

go 1.26.0

require (
	github.com/dop251/goja v0.0.0-20251008123653-cf18d89f3cf6
	github.com/google/go-cmp v0.7.0
	github.com/yuin/goldmark v1.7.13
	golang.org/x/mod v0.38.0
	golang.org/x/net v0.57.0
)

require (
	github.com/dlclark/regexp2 v1.11.4 // indirect
	github.com/go-sourcemap/sourcemap v2.1.3+incompatible // indirect
	github.com/google/pprof v0.0.0-20230207041349-798e818bf904 // indirect
	golang.org/x/text v0.40.0 // indirect
)
