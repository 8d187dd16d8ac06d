// Package why finds out why pods of a snapshot wait, and what would have to be otherwise for them to fit.
//
// It first looks for what keeps the pods beside devices, such as members that do not exist. Then it asks each node, counts the
// nodes by what refuses the pods there, and keeps the nearest miss. Then it tries changes: of the request, of the pods beside, of
// devices and nodes. A change that it returns has been tried on the ledgers by the scheduler's own decisions, and the places that it
// names are free then. The package changes nothing, and writes no sentences.
//
// A snapshot does not have all that the scheduler goes by: selectors, taints, and how workloads slow each other down. The topologies that
// gangs require are not tried. Answer.Unknown says what of it matters for an answer.
package why
