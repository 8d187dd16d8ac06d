// Package snapshots makes the snapshots of a scheduler and serves them to those who may read them.
//
// A snapshot is made when somebody asks, beside the scheduling, from the informers' caches and from what the plugins know between
// two cycles. It holds a lock of the scheduling for the time of one node, pod or gang. Answers are served by the authentication
// and authorisation of the API server. A caller sees the names in those namespaces whose pods it may list. The GPU map shows the
// snapshots of the last hour by the same rights, where it is turned on.
//
// The words it adds to the glossary:
//
//   - view: a snapshot as the callers see it who may see the same namespaces.
package snapshots
