package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// sameJSON compares JSON by what it says: the order of members and white space do
// not count. Numbers stay as they are written. Members that a client makes anew for
// each call, such as a time stamp or a number of its own, are left out by name.
func sameJSON(without ...string) func(*http.Request, []byte) ([]byte, error) {
	return func(_ *http.Request, body []byte) ([]byte, error) {
		decoder := json.NewDecoder(bytes.NewReader(body))
		decoder.UseNumber()
		var value any
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		if members, ok := value.(map[string]any); ok {
			for _, name := range without {
				delete(members, name)
			}
		}
		return json.Marshal(value) // sorts
	}
}

// sameForm compares a multipart form by its parts: the boundary between them, which
// is random, does not count.
func sameForm(req *http.Request, body []byte) ([]byte, error) {
	_, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil || params["boundary"] == "" {
		return body, err // not a form
	}
	var same bytes.Buffer
	for parts := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return same.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		header, err := json.Marshal(part.Header) // sorts
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&same, "%d %s %d %s ", len(header), header, len(content), content)
	}
}

// sameMessage compares protobuf messages of one type by what they say: the order
// of a map, which is random, does not count.
func sameMessage[T any, M interface {
	*T
	proto.Message
}](_ *http.Request, body []byte) ([]byte, error) {
	message := M(new(T))
	if err := proto.Unmarshal(body, message); err != nil {
		return nil, err
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(message)
}

// byKind compares each body by its kind, and what it does not know byte for byte.
func byKind(req *http.Request, body []byte) ([]byte, error) {
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	switch {
	case kind == "application/json":
		return sameJSON("sent_at")(req, body)
	case strings.HasPrefix(kind, "multipart/"):
		return sameForm(req, body)
	}
	return body, nil
}

// A caller in a language whose maps have no order, with a time stamp.
func Example_equalCallsInJSON() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	client, journal := s.open("payments.db", keyed())
	defer journal.Close()
	client.Transport.Fingerprint = byKind

	for _, body := range []string{
		`{"amount":4200,"order":"order-42","sent_at":"10:00:00"}`,
		`{"sent_at":"10:00:07","order":"order-42","amount":4200}`,
		`{"sent_at":"10:00:09","order":"order-42","amount":4201}`, // another amount is another request
	} {
		req, err := http.NewRequest(http.MethodPost, s.url+"/charges", strings.NewReader(body))
		must(err)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do("order-42/charge", req)
		if err != nil {
			fmt.Println(errors.Is(err, idem.ErrMismatch))
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.Status)
	}
	s.tell()
	// Output:
	// 201 Created
	// 201 Created
	// true
	// 2 arrivals, 1 effects
}

// A file in a form, under stripe-go, which makes a boundary for each call.
func Example_equalCallsInAForm() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	s.server.Effect = says(200, `{"id":"file_1","object":"file"}`)
	client, journal := s.open("payments.db", keyed())
	defer journal.Close()
	client.Transport.Fingerprint = byKind

	upload, err := openFiles(site{url: s.url, http: client.HTTPClient()})
	must(err)
	for range 2 {
		fmt.Println(upload(idem.WithOperation(context.Background(), "order-42/evidence")))
	}
	s.tell()
	// Output:
	// file_1 <nil>
	// file_1 <nil>
	// 2 arrivals, 1 effects
}

// A message with a map, under connect.
func Example_equalCallsInProtobuf() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	s.server.Effect = runs(connectServer())
	client, journal := s.open("payments.db", keyed())
	defer journal.Close()
	client.Transport.Fingerprint = sameMessage[structpb.Struct]

	api := connect.NewClient(connecthttp.NewTransport(client.HTTPClient(), s.url))
	order, err := structpb.NewStruct(map[string]any{"order": "order-42", "amount": 4200, "currency": "eur", "card": "visa"})
	must(err)
	ctx := idem.WithOperation(context.Background(), "order-42/charge")
	for range 20 { // one of which has its members in another order
		var charge structpb.Struct
		must(api.CallUnary(ctx, createCharge, order, &charge))
	}
	s.tell()
	// Output:
	// 2 arrivals, 1 effects
}
