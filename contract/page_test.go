package contract

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write docs/providers.md anew")

const pageFile = "../docs/providers.md"

// TestProvidersPage checks that docs/providers.md says what the values say. With
// -update it writes the page.
func TestProvidersPage(t *testing.T) {
	page := providersPage()
	if *update {
		require.NoError(t, os.WriteFile(pageFile, []byte(page), 0o644))
	}
	have, err := os.ReadFile(pageFile)
	require.NoError(t, err)
	assert.Equal(t, page, strings.ReplaceAll(string(have), "\r\n", "\n"),
		"docs/providers.md is not current: go test ./contract -run ProvidersPage -update")
}

const pageHead = `# Providers

What each provider publishes about its idempotency keys, as the values of package contract have it. This page is made from them
(` + "`go test ./contract -run ProvidersPage -update`" + `); their comments say more.

- **Bound**: ` + "`contract.Known`" + ` finds the value on the provider's own hosts, for the routes that take a key. *With At*: bind it
  yourself with ` + "`Contract.At`" + `; the value's comment says why and to what.
- **Key**: a header, ` + "`/name`" + ` a member of the JSON body, ` + "`?name`" + ` a form or query parameter. *None*: the server is not known to honour
  a key, so what may have been delivered is not sent again by itself.
- **Remembered**: how long a key is safe to send again, the strictest figure known. *Unknown*: for one hour at most.
- **Stored failures**: the failures that are kept as the result of a key, so that the same key gets them again. A dash: none is known.
- **In flight** and **Mismatch**: how the answer looks while the key is at work, and when it was used with another request. A dash:
  nothing is published that would tell it from any other failure.

Facts drift. Each value names the day it was read; where two figures are known it has the stricter one, and what is not verified is left
out, which is the cautious side.

| Provider | Value | Bound | Key | Remembered | Stored failures | In flight | Mismatch | Source | Read |
|---|---|---|---|---|---|---|---|---|---|
`

func providersPage() string {
	var page strings.Builder
	page.WriteString(pageHead)
	rows := []string{pageRow("ietf_draft", "`IETF(retention)`", IETF(0))}
	for _, c := range providers() {
		rows = append(rows, pageRow(c.Name, "`"+valueName(c)+"`", c))
	}
	slices.Sort(rows)
	for _, row := range rows {
		page.WriteString(row)
	}
	return page.String()
}

func pageRow(name, value string, c *Contract) string {
	key := "none"
	if !c.NoKeys {
		key = "`" + c.Key.String() + "`" + keyNotes(c)
	}
	cells := []string{
		name, value, pageBound(c), key, pageRetention(c), pageStores(c),
		pageInFlight(c), pageSignals(c.Mismatch), pageSources(c), c.Checked,
	}
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "|", "\\|")
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func keyNotes(c *Contract) string {
	var notes []string
	if c.Key.Encoding == Quoted {
		notes = append(notes, "quoted")
	}
	if c.Form != Visible {
		notes = append(notes, string(c.Form))
	}
	switch {
	case c.MinLength > 0 && c.MaxLength > 0:
		notes = append(notes, fmt.Sprintf("%d to %d bytes", c.MinLength, c.MaxLength))
	case c.MinLength > 0:
		notes = append(notes, fmt.Sprintf("at least %d bytes", c.MinLength))
	case c.MaxLength > 0:
		notes = append(notes, fmt.Sprintf("at most %d bytes", c.MaxLength))
	}
	for _, companion := range c.Companions {
		notes = append(notes, "with `"+companion.Header+"`")
	}
	if len(notes) == 0 {
		return ""
	}
	return ": " + strings.Join(notes, ", ")
}

func pageBound(c *Contract) string {
	if len(c.Hosts) == 0 {
		return "with At"
	}
	return "`" + strings.Join(c.Hosts, "` `") + "`"
}

func pageRetention(c *Contract) string {
	text := "unknown"
	switch day := 24 * time.Hour; {
	case c.NoKeys:
		return "-"
	case c.Name == "ietf":
		text = "as the server says"
	case c.Retention == 0:
	case c.Retention%day == 0 && c.Retention > day:
		text = fmt.Sprintf("%d days", c.Retention/day)
	case c.Retention%time.Hour == 0:
		text = fmt.Sprintf("%d h", c.Retention/time.Hour)
	default:
		text = fmt.Sprintf("%d min", c.Retention/time.Minute)
	}
	switch c.AfterExpiry {
	case ExpiryUnknown:
		return text
	case NeverExpires:
		return text + "; no expiry is published"
	}
	return text + "; then " + string(c.AfterExpiry)
}

func pageStores(c *Contract) string {
	var kinds []string
	if c.StoresClientErrors {
		kinds = append(kinds, "4xx")
	}
	if c.StoresServerErrors {
		kinds = append(kinds, "5xx")
	}
	if len(kinds) == 0 {
		return "-"
	}
	if c.Transient.Header != "" {
		kinds = append(kinds, "but not with `"+c.Transient.Header+": "+c.Transient.Value+"`")
	}
	return strings.Join(kinds, ", ")
}

func pageInFlight(c *Contract) string {
	if len(c.Overlap) == 0 {
		return pageSignals(c.InFlight)
	}
	return strings.TrimPrefix(pageSignals(c.InFlight)+"; in doubt also "+pageSignals(c.Overlap), "-; ")
}

func pageSignals(signals []Signal) string {
	var texts []string
	for _, s := range signals {
		var parts []string
		if s.Status != 0 {
			parts = append(parts, fmt.Sprint(s.Status))
		}
		if s.Pointer != "" {
			parts = append(parts, strings.TrimSpace("`"+s.Pointer+"` "+s.Value))
		}
		if s.Text != "" {
			parts = append(parts, "\""+strings.Trim(s.Text, `"`)+"\"")
		}
		if s.Header.Header != "" {
			parts = append(parts, "`"+strings.TrimSuffix(s.Header.Header+": "+strings.TrimPrefix(s.Header.Param+"="+s.Header.Value, "="), ": ")+"`")
		}
		texts = append(texts, strings.Join(parts, " "))
	}
	if len(texts) == 0 {
		return "-"
	}
	return strings.Join(texts, "; ")
}

func pageSources(c *Contract) string {
	var links []string
	for i, source := range c.Sources {
		links = append(links, fmt.Sprintf("[%d](%s)", i+1, source))
	}
	if len(links) == 0 {
		return "none found"
	}
	return strings.Join(links, " ")
}

// valueName is the Go name of a provider's value.
func valueName(c *Contract) string {
	for name, value := range goNames {
		if value == c {
			return name
		}
	}
	return "?"
}

var goNames = map[string]*Contract{
	"Adyen": Adyen, "Anthropic": Anthropic, "AWSDynamoDBTransaction": AWSDynamoDBTransaction, "AWSEC2": AWSEC2,
	"BraintreeAtMostOnce": BraintreeAtMostOnce, "BraintreeClassic": BraintreeClassic, "Brex": Brex,
	"CheckoutCom": CheckoutCom, "CoinbaseCDP": CoinbaseCDP, "Column": Column, "Dwolla": Dwolla,
	"GoCardless": GoCardless, "GoogleAIP155": GoogleAIP155, "GoogleCloudStorage": GoogleCloudStorage,
	"Increase": Increase, "Klarna": Klarna, "Lithic": Lithic, "LithicPayments": LithicPayments, "Mercury": Mercury,
	"ModernTreasury": ModernTreasury, "Mollie": Mollie, "OASISRepeatable": OASISRepeatable, "OpenAI": OpenAI,
	"PayPalOrdersV2": PayPalOrdersV2, "PayPalPaymentsV2": PayPalPaymentsV2, "PayPalPayoutsV1": PayPalPayoutsV1,
	"PayPalVaultV3": PayPalVaultV3, "PlaidTransferAuthorization": PlaidTransferAuthorization,
	"PlaidTransferCreate": PlaidTransferCreate, "PlaidWallet": PlaidWallet, "RazorpayPayouts": RazorpayPayouts,
	"RazorpayRefunds": RazorpayRefunds, "RazorpayTransfers": RazorpayTransfers, "Resend": Resend,
	"SendGrid": SendGrid, "Shopify": Shopify, "SquareOrders": SquareOrders, "SquarePayments": SquarePayments,
	"StandardWebhooks": StandardWebhooks, "StripeV1": StripeV1, "StripeV2": StripeV2, "Twilio": Twilio,
	"Wise": Wise, "WorldpayWPG": WorldpayWPG,
}

func TestEveryProviderHasAName(t *testing.T) {
	for _, c := range providers() {
		assert.NotEqual(t, "?", valueName(c), c.Name)
	}
	assert.Len(t, goNames, len(providers()))
}
