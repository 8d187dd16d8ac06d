// Package reports shows the reports of shadow mode: as text, as JSON, by HTTPS to those who may read them, and as metrics.
package reports
