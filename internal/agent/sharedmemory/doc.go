// Package sharedmemory removes what tenants left in the memory that they share with their MPS servers.
//
// The package decides how old a file must be to belong to no running tenant. Package mps looks at the files and removes
// them.
package sharedmemory
