package idem

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/contract"
)

// withBoth runs a test against a server over TLS, once with each protocol.
func withBoth(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, server *httptest.Server, client *Client)) {
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				assert.Equal(t, protocol, r.Proto)
				handler(w, r)
			}))
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.StartTLS()
			defer server.Close()
			client := overTLS(t, server, contract.Keyed("Idempotency-Key", time.Hour))
			client.Transport.Base.(*http.Transport).ForceAttemptHTTP2 = server.EnableHTTP2
			test(t, server, client)
		})
	}
}

func TestO34_TrailersReachTheCaller(t *testing.T) {
	for _, kind := range []string{"application/json", "text/event-stream"} { // read beforehand, and handed over
		t.Run(kind, func(t *testing.T) {
			tries := 0
			handler := func(w http.ResponseWriter, _ *http.Request) {
				if tries++; tries == 1 {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				w.Header().Set("Content-Type", kind)
				w.Header().Set("Trailer", "Announced")
				_, _ = io.WriteString(w, strings.Repeat("x", 4096))
				w.(http.Flusher).Flush()
				w.Header().Set("Announced", "1")
				w.Header().Set(http.TrailerPrefix+"Unannounced", "2")
			}
			withBoth(t, handler, func(t *testing.T, server *httptest.Server, client *Client) {
				tries = 0
				req := mustRequest(t, t.Context(), server.URL+"/charges", orderBody(1))
				resp, err := client.Do("order-1", req)
				require.NoError(t, err)
				assert.Len(t, readAndClose(t, resp), 4096)
				assert.Equal(t, http.Header{"Announced": {"1"}, "Unannounced": {"2"}}, resp.Trailer)
				assert.Equal(t, 2, tries)

				tries = 1
				plain, err := server.Client().Do(mustRequest(t, t.Context(), server.URL+"/charges", orderBody(1)))
				require.NoError(t, err)
				readAndClose(t, plain)
				assert.Equal(t, plain.Trailer, resp.Trailer)
				assert.Equal(t, plain.Proto, resp.Proto)
				assert.Equal(t, plain.Uncompressed, resp.Uncompressed)
				assert.Equal(t, plain.TLS.NegotiatedProtocol, resp.TLS.NegotiatedProtocol)
				assert.Equal(t, plain.Request.URL, resp.Request.URL)
				assert.Equal(t, plain.Request.Method, resp.Request.Method)
			})
		})
	}
}

// The pure-Go driver works with the one version of its support library that its
// own go.mod names.
func TestO60_DriverAndItsLibraryAreAPair(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Fatal("the test needs the go command, which runs it: ", err)
	}
	list := func(args ...string) string {
		out, err := exec.Command("go", append([]string{"list", "-m"}, args...)...).Output()
		require.NoError(t, err)
		return strings.TrimSpace(string(out))
	}
	file, err := os.ReadFile(list("-f", "{{.GoMod}}", "modernc.org/sqlite"))
	require.NoError(t, err)
	named := regexp.MustCompile(`modernc\.org/libc (v\S+)`).FindSubmatch(file)
	require.NotNil(t, named, "the driver names no libc")
	assert.Equal(t, string(named[1]), list("-f", "{{.Version}}", "modernc.org/libc"))
}
