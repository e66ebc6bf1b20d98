package contract

import (
	"net/http"
	"time"
)

// Twilio is the contract of Twilio's REST API: no key of a request's was found.
// (I-Twilio-Idempotency-Token is for the webhooks that it sends.) It is
// read-only; see [Contract.Clone].
var Twilio = &Contract{
	Name:    "twilio",
	Hosts:   []string{"api.twilio.com"},
	Methods: []string{http.MethodPost},
	NoKeys:  true,
	Sources: []string{"https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-idempotency-key-header-06"},
	Checked: "2026-11-29",
}

// SendGrid is the contract of SendGrid's API: a key was searched for and not
// found. It is read-only; see [Contract.Clone].
var SendGrid = &Contract{
	Name:    "sendgrid",
	Hosts:   []string{"api.sendgrid.com"},
	Methods: []string{http.MethodPost},
	NoKeys:  true,
	Checked: "2026-11-29",
}

// Resend is the contract of Resend's emails, single and in batches. It is
// read-only; see [Contract.Clone].
var Resend = &Contract{
	Name:       "resend",
	Hosts:      []string{"api.resend.com"},
	Paths:      []string{"/emails", "/emails/batch"},
	ExactPaths: true,
	Methods:    []string{http.MethodPost},

	// dashboard/emails/idempotency-keys, read 2026-11-29.
	Key:       Place{Header: "Idempotency-Key"},
	MaxLength: 256,
	Retention: 24 * time.Hour,

	Replay: ReplayVerbatim,
	// One status with two meanings; the names are second hand, from the error
	// table of its SDK. Read 2026-11-29.
	InFlight: []Signal{{Status: http.StatusConflict, Pointer: "/name", Value: "concurrent_idempotent_requests"}},
	Mismatch: []Signal{{Status: http.StatusConflict, Pointer: "/name", Value: "invalid_idempotent_request"}},

	Sources: []string{"https://resend.com/docs/dashboard/emails/idempotency-keys"},
	Checked: "2026-11-29",
}

// StandardWebhooks is the contract of a sender of Standard Webhooks: the id
// names the event, and each delivery has its own timestamp. It is bound to no
// host: bind it to your receivers' with [Contract.At]. How long a receiver
// remembers an id is its own affair; set Retention on the copy if you know.
//
// The signature covers the timestamp, so it is made anew for each delivery, and
// only you have the secret: Transport.Base must sign, from the headers Webhook-Id
// and Webhook-Timestamp that it is given.
//
// Every answer but a 2xx and 410 is sent again, redirects included. It is
// read-only.
var StandardWebhooks = &Contract{
	Name:    "standard_webhooks",
	Hosts:   []string{},
	Methods: []string{http.MethodPost},

	// spec/standard-webhooks.md, read 2026-11-29.
	Key:        Place{Header: "Webhook-Id"},
	Companions: []Companion{{Header: "Webhook-Timestamp", Value: UnixTime, PerAttempt: true}},

	RetryStatuses: webhookRetries(),

	Sources: []string{
		"https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md",
	},
	Checked: "2026-11-29",
}

// webhookRetries are all failures but 410, and the redirects that nothing
// follows. spec/standard-webhooks.md, read 2026-11-29.
func webhookRetries() []int {
	statuses := []int{300, 301, 302, 304, 305}
	for status := 400; status < 600; status++ {
		if status != http.StatusGone {
			statuses = append(statuses, status)
		}
	}
	return statuses
}
