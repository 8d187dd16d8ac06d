// Package elasticity keeps elastic gangs at the right number of members.
//
// In each pass it takes a snapshot of the cluster, has package elastic decide, and writes the decision into the
// ElasticTargets. The scheduler places no more members than a target says. If a target is smaller than the number of members
// that run, this package has the surplus members leave: it tells them when, waits, and evicts them. If the user of a gang
// wants that, it writes the size into the object that makes the members instead, and that object's controller makes and
// deletes them.
//
// The package knows nothing that is not in the API, but for what it learned since its start. A pass that fails changes
// nothing for the gangs: the last target stands, and the next pass tries again.
package elasticity
