package contract

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const someUUID = "8e03978e-40d5-43dd-bc93-6894a57f9324"

func TestCheckKey(t *testing.T) {
	uuidOnly := Keyed("K", 0)
	uuidOnly.Form = UUID
	keyed := Keyed("K", 0)
	for _, tt := range []struct {
		name string
		c    *Contract
		key  string
		want string // empty: fine
	}{
		{"fine", keyed, "order-42/charge", ""},
		{"every visible character", keyed, "!\"#~}", ""},
		{"empty", keyed, "", "is empty"},
		{"space", keyed, "secret key", "byte 7 of the key"},
		{"control", keyed, "secret\r\nX: y", "byte 7 of the key"},
		{"not ASCII", keyed, "secrét", "byte 5 of the key"},
		{"CV027", IETF(0), "op-é\t1", "byte 4 of the key"},
		{"longest", keyed, strings.Repeat("k", 255), ""},
		{"too long", keyed, strings.Repeat("k", 256), "256 bytes, more than the 255"},
		{"CV017", StripeV1, strings.Repeat("k", 300), "300 bytes, more than the 255"},
		{"CV034", Adyen, strings.Repeat("k", 65), "65 bytes, more than the 64"},
		{"longest of Adyen", Adyen, strings.Repeat("k", 64), ""},
		{"UUID", uuidOnly, someUUID, ""},
		{"UUID upper case", uuidOnly, strings.ToUpper(someUUID), ""},
		{"UUID without dashes", uuidOnly, strings.ReplaceAll(someUUID, "-", ""), "not a UUID"},
		{"UUID in braces", uuidOnly, "{" + someUUID + "}", "not a UUID"},
		{"UUID with a wrong digit", uuidOnly, "g" + someUUID[1:], "not a UUID"},
		{"UUID with a moved dash", uuidOnly, "8e03978e4-0d5-43dd-bc93-6894a57f9324", "not a UUID"},
		{"no keys", Unsupported, "k", "takes no key"},
		{"no contract", nil, "k", "takes no key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.c.CheckKey(tt.key)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			if len(tt.key) > 1 {
				assert.NotContains(t, err.Error(), tt.key)
				assert.NotContains(t, err.Error(), "secr")
			}
		})
	}
}

func TestFormatAndParse(t *testing.T) {
	raw, quoted := Place{Header: "K"}, Place{Header: "K", Encoding: Quoted}
	assert.Equal(t, `a"b\c`, raw.Format(`a"b\c`))
	assert.Equal(t, `"`+someUUID+`"`, quoted.Format(someUUID))
	assert.Equal(t, `"a\"b\\c"`, quoted.Format(`a"b\c`))

	for _, tt := range []struct {
		name  string
		p     Place
		value string
		key   string
		want  string // of the error
	}{
		{"raw", raw, someUUID, someUUID, ""},
		{"raw with quotes", raw, `"k"`, `"k"`, ""},
		{"raw empty", raw, "", "", "it is empty"},
		{"quoted", quoted, `"secret"`, "secret", ""},
		{"quoted with space around", quoted, ` "secret"  `, "secret", ""},
		{"quoted escapes", quoted, `"a\"b\\c"`, `a"b\c`, ""},
		{"quoted empty", quoted, `""`, "", "it is empty"},
		{"nothing", quoted, "", "", "not in double quotes"},
		{"bare", quoted, "secret", "", "not in double quotes"},
		{"unclosed", quoted, `"secret`, "", "closing quote is missing"},
		{"only a quote", quoted, `"`, "", "closing quote is missing"},
		{"cut escape", quoted, `"secret\`, "", "bad escape at byte 8"},
		{"other escape", quoted, `"secret\n"`, "", "bad escape at byte 8"},
		{"tail", quoted, `"secret"x`, "", "after the closing quote at byte 8"},
		{"parameter", quoted, `"secret";a=1`, "", "after the closing quote at byte 8"},
		{"two", quoted, `"secret","b"`, "", "after the closing quote at byte 8"},
		{"tab", quoted, "\"secret\t\"", "", "byte 8 is not allowed"},
		{"not ASCII", quoted, `"secreté"`, "", "byte 8 is not allowed"},
		{"unknown encoding", Place{Header: "K", Encoding: "base64"}, "secret", "", `unknown encoding "base64"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key, err := tt.p.Parse(tt.value)
			assert.Equal(t, tt.key, key)
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			assert.NotContains(t, err.Error(), "secret")
		})
	}
}

// FuzzQuoted: what was parsed is written and parsed again as the same key, and a
// key that may be sent always comes back.
func FuzzQuoted(f *testing.F) {
	for _, s := range []string{someUUID, `"k"`, `"a\"b\\c"`, `"`, `"\`, ` "k" `, `"k";a=1`, "\x00", `"é"`, `""`} {
		f.Add(s)
	}
	any := IETF(0)
	f.Fuzz(func(t *testing.T, s string) {
		if key, err := any.Key.Parse(s); err == nil {
			assert.Equal(t, strings.Trim(s, " "), any.Key.Format(key))
		}
		if any.CheckKey(s) == nil {
			key, err := any.Key.Parse(any.Key.Format(s))
			require.NoError(t, err)
			assert.Equal(t, s, key)
		}
	})
}
