// Package query writes expressions of PromQL from families of metrics, so that none names a metric or a label that no program serves.
//
// A Selector is the series of a family, an Expr what is computed from them. An Expr knows the labels of its result and notes each mistake:
// a label that the family does not have, the rate of a gauge, an operation between results of unlike labels. Err returns the mistakes. The
// package does not evaluate expressions; tests have Prometheus do that.
package query
