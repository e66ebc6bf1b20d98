package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
)

// plays is a model that always wants the same for an order: charge it and write to
// the customer, both at once; then give two vouchers, by two calls that are equal
// but for their ids, since two is what was promised; then say so. Like a real one,
// it gives other ids each time that it is asked.
func plays(order string) func(transcript []turn) turn {
	args := func(amount int) json.RawMessage { return fmt.Appendf(nil, `{"order":%q,"amount":%d}`, order, amount) }
	return func(transcript []turn) turn {
		switch len(transcript) {
		case 0:
			return turn{Text: "I charge the card and send the receipt.", Calls: []call{
				{callID(), toolCharge, args(4200)}, {callID(), toolMail, args(4200)},
			}}
		case 2:
			return turn{Text: "I give the two vouchers that were promised.", Calls: []call{
				{callID(), toolVoucher, args(1000)}, {callID(), toolVoucher, args(1000)},
			}}
		}
		return turn{Text: order + " is done."}
	}
}

func callID() string { return "call_" + strings.ToLower(rand.Text()[:16]) }
