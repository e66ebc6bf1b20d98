package integration

import (
	"context"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/idem-go/idem/contract"
)

const completion = `{"id":"chatcmpl-1","object":"chat.completion","created":1764000000,"model":"gpt-5",` +
	`"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hello."}}]}`

func init() {
	subjects["openai"] = &subject{
		client: at(contract.OpenAI), effect: says(200, completion), open: openOpenAI, want: "chatcmpl-1 Hello.",
	}
	gateway := *subjects["openai"]
	gateway.server, gateway.client = keyed(), at(keyed())
	subjects["openai behind a gateway"] = &gateway
}

// The client keeps its own two retries.
func openOpenAI(s site) (func(context.Context) (string, error), error) {
	api := openai.NewClient(option.WithAPIKey("sk-test-1"), option.WithBaseURL(s.url+"/v1"), option.WithHTTPClient(s.http))
	return func(ctx context.Context) (string, error) {
		answer, err := api.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
			Model:    openai.ChatModelGPT5,
			Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say hello.")},
		})
		if err != nil {
			return "", err
		}
		return answer.ID + " " + answer.Choices[0].Message.Content, nil
	}, nil
}

func TestOpenAI(t *testing.T) { testSentOnce(t, "openai") }

func TestOpenAIBehindAGateway(t *testing.T) { testOneEffect(t, "openai behind a gateway") }
