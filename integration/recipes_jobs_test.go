package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/riverqueue/river/rivertype"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/faultinjection"
)

// A queue gives a job again after a crash or a timeout, perhaps on another
// machine, whose journal knows nothing of the first try: so all have the same keys.
func newWorker(journal idem.Journal, api, provider string, secret []byte) *idem.Client {
	return idem.NewClient(&idem.Transport{
		Journal:   journal,
		Contracts: keyed().At(provider),
		Name:      api,
		Key:       idem.DeriveKeys(secret),
		Retry:     idem.RetryPolicy{MinBackoff: 10 * time.Millisecond},
	})
}

// activityInfo has the names of go.temporal.io/sdk/activity.Info.
type activityInfo struct {
	WorkflowExecution struct{ ID, RunID string }
	ActivityID        string
	Attempt           int32
}

// errNoRetry is what a Temporal activity returns by
// temporal.NewNonRetryableApplicationError, and a River job by river.JobCancel.
var errNoRetry = errors.New("no retry")

// chargeActivity is a Temporal activity; info is activity.GetInfo(ctx). Retries of
// an activity have the ids of its first attempt. With the workflow's ID and not its
// RunID, a workflow that is reset or started anew goes on with the same charge.
func chargeActivity(ctx context.Context, info activityInfo, client *idem.Client, url, order string, amount int) (string, error) {
	said, err := charges(ctx, client, url, info.WorkflowExecution.ID+"/"+info.ActivityID+"/"+order, amount)
	return said, retried(err)
}

// retried tells a queue which errors another try may mend.
func retried(err error) error {
	if errors.Is(err, idem.ErrHeld) || errors.Is(err, idem.ErrMismatch) || errors.Is(err, idem.ErrNotKept) {
		return fmt.Errorf("%w: %w", errNoRetry, err) // a person must look at it
	}
	return err // not sent, or unknown: the same operation again, under the same key
}

func Example_temporalActivity() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	info := activityInfo{ActivityID: "5"}
	info.WorkflowExecution.ID = "checkout-42"
	for attempt, machine := range []string{"worker-a.db", "worker-b.db"} {
		_, journal := s.open(machine, keyed())
		client := newWorker(journal, "shop", s.host, []byte("of all workers"))
		client.Transport.Retry.MaxAttempts = 1 // so that the queue has something to do
		info.Attempt = int32(attempt + 1)
		said, err := chargeActivity(context.Background(), info, client, s.url, "order-42", 4200)
		fmt.Println("attempt", info.Attempt, said, errors.Is(err, errNoRetry))
		must(journal.Close())
	}
	s.tell()
	// Output:
	// attempt 1 pending false
	// attempt 2 charged false
	// 2 arrivals, 1 effects
}

// chargeJob is what a job is told.
type chargeJob struct {
	Order  string `json:"order"`
	Amount int    `json:"amount"`
}

// workCharge is the Work of a River worker: job is what river.Job holds.
func workCharge(ctx context.Context, job *rivertype.JobRow, client *idem.Client, url string) error {
	var args chargeJob
	if err := json.Unmarshal(job.EncodedArgs, &args); err != nil {
		return fmt.Errorf("%w: %w", errNoRetry, err)
	}
	operation := fmt.Sprintf("job-%d/%s", job.ID, args.Order)
	_, err := charges(ctx, client, url, operation, args.Amount)
	return retried(err)
}

func Example_riverJob() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	job := &rivertype.JobRow{ID: 7, EncodedArgs: []byte(`{"order":"order-42","amount":4200}`)}
	for job.Attempt < 2 {
		job.Attempt++
		_, journal := s.open("payments.db", keyed())
		client := newWorker(journal, "shop", s.host, []byte("of all workers"))
		client.Transport.Retry.MaxAttempts = 1
		err := workCharge(context.Background(), job, client, s.url)
		fmt.Println("attempt", job.Attempt, err == nil, errors.Is(err, errNoRetry))
		must(journal.Close())
		time.Sleep(20 * time.Millisecond) // the queue's pause
	}
	s.tell()
	// Output:
	// attempt 1 false false
	// attempt 2 true false
	// 2 arrivals, 1 effects
}

// handler is a Lambda function on an SQS queue. A message keeps its id when it is
// delivered again; the request id of the invocation does not. Its journal is in
// /tmp, which may be gone next time: the derived keys are not. What is not settled
// is left on the queue; what no delivery can mend goes where the queue's redrive
// policy has it.
func handler(client *idem.Client, url string, logger *slog.Logger) func(context.Context, events.SQSEvent) (events.SQSEventResponse, error) {
	return func(ctx context.Context, event events.SQSEvent) (answer events.SQSEventResponse, err error) {
		for _, message := range event.Records {
			var args chargeJob
			err := json.Unmarshal([]byte(message.Body), &args)
			if err == nil {
				_, err = charges(ctx, client, url, "sqs-"+message.MessageId+"/"+args.Order, args.Amount)
			}
			if err != nil {
				logger.WarnContext(ctx, "left on the queue", "message", message.MessageId, "err", err)
				answer.BatchItemFailures = append(answer.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: message.MessageId})
			}
		}
		return answer, nil
	}
}

func Example_lambdaHandler() {
	s := setStage(keyed(), faultinjection.DieAfterEffect)
	defer s.close()
	event := events.SQSEvent{Records: []events.SQSMessage{
		{MessageId: "m-1", Body: `{"order":"order-42","amount":4200}`},
		{MessageId: "m-2", Body: `{"order":"order-43","amount":4200}`},
	}}
	for _, sandbox := range []string{"cold.db", "another.db"} {
		_, journal := s.open(sandbox, keyed())
		client := newWorker(journal, "shop", s.host, []byte("of all functions"))
		client.Transport.Retry.MaxAttempts = 1
		answer, err := handler(client, s.url, slog.New(slog.DiscardHandler))(context.Background(), event)
		fmt.Println(len(answer.BatchItemFailures), "left on the queue", err)
		must(journal.Close())
	}
	s.tell()
	// Output:
	// 1 left on the queue <nil>
	// 0 left on the queue <nil>
	// 4 arrivals, 2 effects
}
