package integration

import (
	"context"
	"net/http"
	"strconv"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"connectrpc.com/connect/v2/connectproto"
	"google.golang.org/protobuf/types/known/structpb"
)

func init() {
	subjects["connect"] = &subject{
		server: keyed(), client: at(keyed()), effect: runs(connectServer()), open: openConnect, want: "ch_1 4200",
	}
	withoutKeys("connect")
}

var createCharge = connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: "/shop.v1.Charges/Create"}

func connectServer() http.Handler {
	server := connect.NewServer()
	server.Register(connect.Method{Spec: createCharge, Handler: func(_ context.Context, _ connect.Spec, stream connect.ServerStream) error {
		var order, charge structpb.Struct
		if err := stream.Receive(&order); err != nil {
			return err
		}
		charge.Fields = map[string]*structpb.Value{"id": structpb.NewStringValue("ch_1"), "amount": order.Fields["amount"]}
		return stream.Send(&charge)
	}})
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	return mux
}

// A message with a map has other bytes each time, unless the codec is told
// otherwise: then the same call is another request.
func openConnect(s site) (func(context.Context) (string, error), error) {
	codec := connectproto.NewBinaryCodec()
	codec.MarshalOptions.Deterministic = true
	api := connect.NewClient(connecthttp.NewTransport(s.http, s.url, connecthttp.WithCodecs(codec)))
	return func(ctx context.Context) (string, error) {
		order, err := structpb.NewStruct(map[string]any{"order": "order-42", "amount": 4200, "currency": "eur", "card": "visa"})
		if err != nil {
			return "", err
		}
		var charge structpb.Struct
		if err := api.CallUnary(ctx, createCharge, order, &charge); err != nil {
			return "", err
		}
		return charge.Fields["id"].GetStringValue() + " " + strconv.Itoa(int(charge.Fields["amount"].GetNumberValue())), nil
	}, nil
}

func TestConnectWithoutKeys(t *testing.T) { testSentOnce(t, "connect without keys") }

func TestConnect(t *testing.T) { testOneEffect(t, "connect") }
