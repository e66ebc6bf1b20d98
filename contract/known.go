package contract

import "net/http"

// Known finds the contract of every provider in this package on the provider's
// own hosts: [StripeV1], [StripeV2], [Adyen]. It takes no other host.
var Known = First(Stripe, Adyen)

// First returns a resolver that asks each of r in turn and takes the first
// answer. Narrow ones go before wide ones. A nil among r is skipped; without
// any, it takes nothing.
func First(r ...Resolver) Resolver {
	list := make(first, 0, len(r))
	for _, resolver := range r {
		if resolver != nil {
			list = append(list, resolver)
		}
	}
	return list
}

type first []Resolver

// Resolve returns the first contract found, or nil.
func (f first) Resolve(req *http.Request) *Contract {
	for _, resolver := range f {
		if c := resolver.Resolve(req); c != nil {
			return c
		}
	}
	return nil
}
