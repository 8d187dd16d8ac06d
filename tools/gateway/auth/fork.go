package auth

import (
	"net/http"
	"strings"
)

// CheckSecret reports whether a password is the one that a line of a password file has. Traefik's fork of the package adds the function.
func CheckSecret(password, secret string) bool {
	check := compareFuncs[0].compare // of secrets without a known prefix
	for _, known := range compareFuncs[1:] {
		if strings.HasPrefix(secret, known.prefix) {
			check = known.compare
			break
		}
	}
	return check([]byte(secret), []byte(password)) == nil
}

// RequireAuthStale asks for a password. Traefik's fork of the package adds the function, for a nonce that is too old.
func (a *DigestAuth) RequireAuthStale(w http.ResponseWriter, r *http.Request) { a.RequireAuth(w, r) }
