package kube

import (
	"fmt"
	"math/big"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Quantities are what users write. The API server accepts 1e3000000, a number of three million digits, of which one
// comparison takes half a second. It also accepts amounts beyond 64 bits, of which resource.Quantity returns the lower
// bits: 9223372036854775808 is −9223372036854775808 there. So whatever calculates with a quantity looks first whether
// it isPlain.

const (
	// maxExponent bounds the power of ten of a plain quantity. The suffixes of Kubernetes are from n (−9) to E (18), Ei included.
	maxExponent = 30
	// maxBits bounds its digits: some 77 of them, four times as many as 64 bits have.
	maxBits = 256
)

// isPlain reports whether arithmetic with a quantity takes no longer than with any other amount. isPlain looks at the
// exponent and at the number of digits, and calculates nothing.
func isPlain(q resource.Quantity) bool {
	exponent, digits := partsOf(q)
	return exponent >= -maxExponent && exponent <= maxExponent && digits.BitLen() <= maxBits
}

// partsOf returns a quantity as digits × 10^exponent, without rounding. The caller must not change the digits.
func partsOf(q resource.Quantity) (exponent int64, digits *big.Int) {
	dec := q.AsDec() // of the copy: a conversion that shifts no digit
	return -int64(dec.Scale()), dec.UnscaledBig()
}

// amountOf returns a quantity in units of ten to the power of unit, rounded up, from 0 to most: larger ones saturate.
func amountOf(q resource.Quantity, unit resource.Scale, most int64) int64 {
	exponent, _ := partsOf(q)
	switch {
	case q.Sign() <= 0:
		return 0
	case !isPlain(q) && exponent < -maxExponent:
		return 1 // no digits that a user writes make up for so many decimals
	case !isPlain(q) || q.Cmp(*resource.NewScaledQuantity(most, unit)) >= 0:
		return most
	}
	return q.ScaledValue(unit)
}

// Whole returns the value of a quantity that is a whole number from 1 to most.
func Whole(q resource.Quantity, most int64) (int64, bool) {
	if q.Sign() <= 0 || !isPlain(q) || q.CmpInt64(most) > 0 {
		return 0, false
	}
	value := q.Value() // rounds up, so a fraction shows as a difference
	return value, q.CmpInt64(value) == 0
}

// ShownQuantity writes a quantity into a message, shortened. To write one of a million digits takes minutes.
func ShownQuantity(q resource.Quantity) string {
	if _, digits := partsOf(q); digits.BitLen() > maxBits {
		return fmt.Sprintf("a number of %d bits", digits.BitLen())
	}
	return Shown(q.String())
}
