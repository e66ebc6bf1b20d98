package contract

import "net/http"

// The advice and the waits of the SDKs that Stainless generates
// (internal/requestconfig of openai-go, anthropic-sdk-go and increase-go, read
// 2026-11-29).
var (
	stainlessAdvice = Advice{Header: "X-Should-Retry", Yes: "true", No: "false"}
	stainlessWaits  = []Wait{{Header: "Retry-After-Ms", Unit: Milliseconds}, {Header: "Retry-After"}}
)

// OpenAI is the contract of OpenAI's API: its SDKs put no key on the wire. It is
// read-only; see [Contract.Clone].
var OpenAI = &Contract{
	Name:        "openai",
	Hosts:       []string{"api.openai.com"},
	Methods:     []string{http.MethodPost},
	NoKeys:      true,
	ShouldRetry: stainlessAdvice,
	Waits:       stainlessWaits,
	Sources: []string{
		"https://github.com/openai/openai-go/blob/main/internal/requestconfig/requestconfig.go",
		"https://github.com/openai/openai-python/blob/main/src/openai/_base_client.py",
	},
	Checked: "2026-11-29",
}

// Anthropic is the contract of Anthropic's API: its SDK puts no key on the wire.
// It is read-only; see [Contract.Clone].
var Anthropic = &Contract{
	Name:        "anthropic",
	Hosts:       []string{"api.anthropic.com"},
	Methods:     []string{http.MethodPost},
	NoKeys:      true,
	ShouldRetry: stainlessAdvice,
	Waits:       stainlessWaits,
	Sources: []string{
		"https://github.com/anthropics/anthropic-sdk-go/blob/main/internal/requestconfig/requestconfig.go",
	},
	Checked: "2026-11-29",
}
