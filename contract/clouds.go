package contract

import (
	"net/http"
	"time"
)

// AWSEC2 is the contract of the actions of Amazon's EC2 that take a ClientToken,
// such as RunInstances, as a parameter of the form. It is bound to no host,
// because the action is in the body, and an action without a ClientToken refuses
// it. Bind it with [Contract.At] to ec2.<region>.amazonaws.com, in a transport
// that only sends such actions.
//
// A request is signed with its body: Transport.Base must sign, or the caller's
// SDK must set the token itself, which is then adopted. A key is known in one
// region only. How long is not published. It is read-only.
var AWSEC2 = &Contract{
	Name:    "aws_ec2",
	Hosts:   []string{},
	Methods: []string{http.MethodPost},

	// "Ensuring idempotency", read 2026-11-29.
	Key:        Place{Param: "ClientToken"},
	Form:       Printable,
	MaxLength:  64,
	HostPinned: true,

	Replay:   ReplayCurrent,
	Mismatch: []Signal{{Status: http.StatusBadRequest, Text: "IdempotentParameterMismatch"}}, // in XML

	Sources: []string{"https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-idempotency.html"},
	Checked: "2026-11-29",
}

// AWSDynamoDBTransaction is the contract of TransactWriteItems of Amazon's
// DynamoDB: the key is a member of the JSON body. It is bound to no host, because
// the action is in the header X-Amz-Target, and the others take no token. Bind it
// with [Contract.At] to dynamodb.<region>.amazonaws.com, in a transport that only
// sends this one.
//
// A request is signed with its body: Transport.Base must sign, or the caller's
// SDK must set the token itself, which is then adopted. A key is known in one
// region only, for ten minutes. It is read-only.
var AWSDynamoDBTransaction = &Contract{
	Name:    "aws_dynamodb_txn",
	Hosts:   []string{},
	Methods: []string{http.MethodPost},

	// The reference of TransactWriteItems, second hand; the length is not
	// verified. Read 2026-11-29.
	Key:        Place{Pointer: "/ClientRequestToken"},
	MaxLength:  36,
	Retention:  10 * time.Minute,
	HostPinned: true,

	Replay:   ReplayVerbatim,
	Mismatch: []Signal{{Status: http.StatusBadRequest, Text: "IdempotentParameterMismatch"}}, // in __type

	Sources: []string{
		"https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html",
	},
	Checked: "2026-11-29",
}

// GoogleAIP155 is the contract of the Google APIs with a request_id (AIP-155),
// as the query parameter requestId. It is bound to no host, because it depends on
// the method of the API: bind it with [Contract.At], and set Paths, where the
// API's reference has the field. It is read-only.
var GoogleAIP155 = &Contract{
	Name:    "google_aip155",
	Hosts:   []string{},
	Methods: []string{http.MethodPost, http.MethodPatch, http.MethodDelete},

	// general/0155.md; "at least 60 minutes" in the comments of many generated
	// clients. Read 2026-11-29.
	Key:       Place{Param: "requestId"},
	Form:      UUID4,
	MaxLength: 36,
	Retention: time.Hour,

	Replay: ReplayCurrent,

	Sources: []string{
		"https://github.com/aip-dev/google.aip.dev/blob/master/aip/general/0155.md",
		"https://github.com/aip-dev/google.aip.dev/blob/master/aip/general/0194.md",
	},
	Checked: "2026-11-29",
}

// GoogleCloudStorage is the contract of Google Cloud Storage. Its client
// libraries send X-Goog-Gcs-Idempotency-Token, but nothing says that the server
// keeps to it, so it counts as a server without keys: what makes a write safe to
// send again is a precondition such as ifGenerationMatch. It is read-only; see
// [Contract.Clone].
var GoogleCloudStorage = &Contract{
	Name:    "gcs",
	Hosts:   []string{"storage.googleapis.com"},
	Methods: []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
	NoKeys:  true,
	Sources: []string{"https://cloud.google.com/storage/docs/retry-strategy"},
	Checked: "2026-11-29",
}

// OASISRepeatable is the contract of OASIS Repeatable Requests, as Azure's
// guideline has it. The instant of the first send goes with the key and never
// changes: a key that is older than the server's window of five minutes or more
// is refused with 412, and must not be made to look younger. It is bound to no
// host: bind it with [Contract.At] to a service that says that it follows it.
//
// A success without Repeatability-Result: accepted is one of a server that did
// not understand the key. It is read-only.
var OASISRepeatable = &Contract{
	Name:    "oasis_repeatable",
	Hosts:   []string{},
	Methods: []string{http.MethodPost},

	// azure/Guidelines.md, "Repeatability of requests", read 2026-11-29.
	Key:         Place{Header: "Repeatability-Request-ID"},
	Form:        UUID,
	MaxLength:   36,
	Companions:  []Companion{{Header: "Repeatability-First-Sent", Value: HTTPDate}},
	Echo:        "Repeatability-Result",
	Retention:   5 * time.Minute,
	AfterExpiry: Refused,

	Replay:             ReplayVerbatim,
	StoresClientErrors: true,
	// rest/api/communication/repeatable-requests, read 2026-11-29.
	InFlight: []Signal{{Status: http.StatusConflict}},
	Mismatch: []Signal{
		{Status: http.StatusBadRequest, Header: Marker{Header: "Repeatability-Result", Value: "rejected"}},
	},

	Sources: []string{
		"https://github.com/microsoft/api-guidelines/blob/vNext/azure/Guidelines.md",
		"https://learn.microsoft.com/rest/api/communication/repeatable-requests",
		"https://docs.oasis-open.org/odata/repeatable-requests/v1.0/repeatable-requests-v1.0.html",
	},
	Checked: "2026-11-29",
}
