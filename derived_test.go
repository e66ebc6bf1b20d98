package idem

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// An SDK that mints a key for each call is no other caller than one that leaves it
// to us: on every replica a name has the key that Transport.Key derives, wherever the
// SDK has put its own.
func TestDerivedKeysWinOverAnSDKs(t *testing.T) {
	for name, place := range map[string]contract.Place{
		"header": {Header: "Idempotency-Key"}, "body": {Pointer: "/key"}, "query": {Param: "key"},
	} {
		t.Run(name, func(t *testing.T) {
			virtually(t, func(t *testing.T) {
				c := contract.Keyed("Idempotency-Key", rigContract().Retention)
				c.Key = place
				r := newRigFor(t, c)
				call := func(sdk string) Intent {
					address, body := rigURL, orderBody(1)
					switch name {
					case "body":
						body = `{"key":"` + sdk + `","amount":4200}`
					case "query":
						address += "?key=" + sdk
					}
					req := mustRequest(t, context.Background(), address, body)
					if name == "header" {
						req.Header.Set("Idempotency-Key", sdk)
					}
					resp, result, err := r.roundTrip(t.Context(), "order-1", req)
					require.NoError(t, err)
					require.Equal(t, 201, resp.StatusCode)
					readAndClose(t, resp)
					return result.Intent
				}
				r.transport.Key = DeriveKeys([]byte("a secret"))
				first := call("sdk-key-1")
				assert.Nil(t, first.Adopted)
				r.path = filepath.Join(t.TempDir(), "another.db") // another replica
				r.reopen()
				r.transport.Key = DeriveKeys([]byte("a secret"))
				assert.Equal(t, first.Key, call("sdk-key-2").Key)
				assert.Equal(t, 1, r.effects())
				assert.Equal(t, first.Key, r.sameKeyAndBytes(2))
			})
		})
	}
}
