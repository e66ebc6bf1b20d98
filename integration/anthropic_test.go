package integration

import (
	"context"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"

	"github.com/idem-go/idem/contract"
)

const message = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5",` +
	`"content":[{"type":"text","text":"Hello."}],"stop_reason":"end_turn","stop_sequence":null,` +
	`"usage":{"input_tokens":9,"output_tokens":3}}`

func init() {
	subjects["anthropic"] = &subject{
		client: at(contract.Anthropic), effect: says(200, message), open: openAnthropic, want: "msg_1 Hello.",
	}
	gateway := *subjects["anthropic"]
	gateway.server, gateway.client = keyed(), at(keyed())
	subjects["anthropic behind a gateway"] = &gateway
}

// The client keeps its own two retries.
func openAnthropic(s site) (func(context.Context) (string, error), error) {
	api := anthropic.NewClient(option.WithoutEnvironmentDefaults(), option.WithAPIKey("sk-ant-test-1"),
		option.WithBaseURL(s.url), option.WithHTTPClient(s.http))
	return func(ctx context.Context) (string, error) {
		answer, err := api.Messages.New(ctx, anthropic.MessageNewParams{
			Model: "claude-sonnet-4-5", MaxTokens: 64,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Say hello."))},
		})
		if err != nil {
			return "", err
		}
		return answer.ID + " " + answer.Content[0].Text, nil
	}, nil
}

func TestAnthropic(t *testing.T) { testSentOnce(t, "anthropic") }

func TestAnthropicBehindAGateway(t *testing.T) { testOneEffect(t, "anthropic behind a gateway") }
