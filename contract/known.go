package contract

import (
	"net/http"
	"slices"
	"strings"
)

// Known finds the contract of every provider in this package on the provider's
// own hosts, production and sandbox, by host, path and method. It takes no other
// host.
var Known Resolver = newDirectory(providers())

// providers are all contracts that are values, in alphabetical order of their
// names; where two take one request, the first one counts, which never happens
// among them.
func providers() []*Contract {
	return []*Contract{
		Adyen, Anthropic, AWSDynamoDBTransaction, AWSEC2, BraintreeAtMostOnce, BraintreeClassic, Brex,
		CheckoutCom, CoinbaseCDP, Column, Dwolla, GoCardless, GoogleAIP155, GoogleCloudStorage, Increase,
		Klarna, Lithic, LithicPayments, Mercury, ModernTreasury, Mollie, OASISRepeatable, OpenAI,
		PayPalOrdersV2, PayPalPaymentsV2, PayPalPayoutsV1, PayPalVaultV3, PlaidTransferAuthorization,
		PlaidTransferCreate, PlaidWallet, RazorpayPayouts, RazorpayRefunds, RazorpayTransfers, Resend,
		SendGrid, Shopify, SquareOrders, SquarePayments, StandardWebhooks, StripeV1, StripeV2, Twilio, Wise,
		WorldpayWPG,
	}
}

// directory finds contracts by host first, so that the many do not cost what one
// does not.
type directory struct {
	exact map[string][]*Contract // by the name that Hosts has, lower case
	wild  []*Contract            // those with a star in Hosts
}

func newDirectory(contracts []*Contract) *directory {
	d := &directory{exact: make(map[string][]*Contract)}
	for _, c := range contracts {
		for _, host := range c.Hosts {
			name, _ := splitHost(host)
			if strings.HasPrefix(name, "*") {
				if !slices.Contains(d.wild, c) {
					d.wild = append(d.wild, c)
				}
				continue
			}
			name = canonicalHost(name)
			d.exact[name] = append(d.exact[name], c)
		}
	}
	return d
}

// Resolve returns the contract that is bound to the request, or nil.
func (d *directory) Resolve(req *http.Request) *Contract {
	if req == nil || req.URL == nil {
		return nil
	}
	for _, list := range [][]*Contract{d.exact[canonicalHost(req.URL.Hostname())], d.wild} {
		for _, c := range list {
			if c.Resolve(req) != nil {
				return c
			}
		}
	}
	return nil
}

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
