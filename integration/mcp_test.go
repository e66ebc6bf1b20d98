package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/idem-go/idem/contract"
)

func init() {
	subjects["mcp"] = &subject{
		client: at(contract.Unsupported), effect: runs(mcpServer()), front: toolsOnly, open: openMCP,
		want: "charged 4200 for order-42",
	}
	gateway := *subjects["mcp"]
	gateway.server, gateway.client = keyed(), at(keyed())
	subjects["mcp behind a gateway"] = &gateway
}

type chargeArgs struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

func mcpServer() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "v1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "charge"}, func(_ context.Context, _ *mcp.CallToolRequest, in chargeArgs) (*mcp.CallToolResult, any, error) {
		text := fmt.Sprintf("charged %d for %s", in.Amount, in.Order)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
}

// toolsOnly has the server keep calls of tools. The rest of the protocol is no
// operation.
func toolsOnly(server http.Handler) http.Handler {
	rest := mcpServer()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if rpcMethod(body) == "tools/call" {
			server.ServeHTTP(w, r)
		} else {
			rest.ServeHTTP(w, r)
		}
	})
}

func rpcMethod(body []byte) string {
	var rpc struct{ Method string }
	_ = json.Unmarshal(body, &rpc)
	return rpc.Method
}

func openMCP(s site) (func(context.Context) (string, error), error) {
	return openSession(s, &http.Client{Transport: toolCalls{s.http.Transport}})
}

func openSession(s site, client *http.Client) (func(context.Context) (string, error), error) {
	api := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "v1.0.0"}, nil)
	session, err := api.Connect(context.Background(), &mcp.StreamableClientTransport{Endpoint: s.url, HTTPClient: client}, nil)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (string, error) {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "charge", Arguments: chargeArgs{Order: "order-42", Amount: 4200}})
		if err != nil {
			return "", err
		}
		return result.Content[0].(*mcp.TextContent).Text, nil
	}, nil
}

// toolCalls sends calls of tools through our transport, and what else the
// protocol says past it. It gives every call the same JSON-RPC id, since the
// client numbers what it sends in a session: with another id the same call would
// be another request. The answer gets the client's id back.
type toolCalls struct{ idem http.RoundTripper }

func (c toolCalls) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPost {
		return http.DefaultTransport.RoundTrip(req)
	}
	body, err := io.ReadAll(req.Body)
	req.Body.Close()
	if err != nil {
		return nil, err
	}
	own := req.Clone(req.Context())
	own.Body = io.NopCloser(bytes.NewReader(body))
	if rpcMethod(body) != "tools/call" {
		return http.DefaultTransport.RoundTrip(own)
	}
	body, id := withID(body, json.RawMessage(`"call"`))
	own.Body, own.ContentLength, own.GetBody = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	resp, err := c.idem.RoundTrip(own)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	answer, _ = withID(answer, id)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(answer)), int64(len(answer))
	return resp, nil
}

// withID changes the id of a JSON-RPC message, and returns the one it had.
func withID(message []byte, id json.RawMessage) (changed []byte, old json.RawMessage) {
	var members map[string]json.RawMessage
	if json.Unmarshal(message, &members) != nil || members["id"] == nil {
		return message, nil
	}
	old, members["id"] = members["id"], id
	changed, _ = json.Marshal(members) // raw members cannot fail
	return changed, old
}

func TestMCP(t *testing.T) { testSentOnce(t, "mcp") }

func TestMCPBehindAGateway(t *testing.T) { testOneEffect(t, "mcp behind a gateway") }
