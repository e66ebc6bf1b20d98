package idem

import (
	"math/rand/v2"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What plainURL takes is what storedURL and shownURL write, and is read as it was.
func TestPlainURLsAreReadAsTheyWere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const letters = "aZ09-._~:/@%20? #[]&=+;,é\x00"
	text := func(n int) string {
		b := make([]byte, random.IntN(n))
		for i := range b {
			if b[i] = letters[random.IntN(len(letters))]; random.IntN(3) > 0 {
				b[i] = letters[random.IntN(6)]
			}
		}
		return string(b)
	}
	plain := 0
	for range 200_000 {
		u := &url.URL{Scheme: []string{"http", "https"}[random.IntN(2)], Host: "h" + text(6), Path: "/" + text(9)}
		switch random.IntN(12) {
		case 0:
			u.RawQuery = text(4)
		case 1:
			u.Fragment = text(4)
		case 2:
			u.User = url.User("u")
		case 3:
			u.RawPath = text(5)
		case 4:
			u.ForceQuery = true
		case 5:
			u.Host, u.Path = text(8), text(8)
		}
		written, ok := plainURL(u)
		if !ok {
			continue
		}
		plain++
		require.Equal(t, storedURL(u), written)
		require.Equal(t, shownURL(u), written)
		read, err := parseStored(written)
		require.NoError(t, err, written)
		require.Equal(t, u, read)
	}
	assert.Greater(t, plain, 10_000)
	for _, usual := range []string{"https://api.stripe.com/v1/charges", "http://127.0.0.1:8080/", "https://example.com/a/b_c.json"} {
		u, err := url.Parse(usual)
		require.NoError(t, err)
		written, ok := plainURL(u)
		assert.True(t, ok && written == usual, usual)
	}
}
