module github.com/idem-go/idem/integration/bench

go 1.26.0

replace github.com/idem-go/idem => ../../

require (
	github.com/dbos-inc/dbos-transact-golang v1.8.0
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/google/uuid v1.6.0
	github.com/hashicorp/go-retryablehttp v0.7.8
	github.com/idem-go/idem v0.0.0
	github.com/riverqueue/river v0.51.2
	github.com/riverqueue/river/riverdriver/riversqlite v0.51.2
	github.com/stretchr/testify v1.12.1
	github.com/stripe/stripe-go/v85 v85.0.0
	modernc.org/sqlite v1.62.0
)
