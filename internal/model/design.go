package model

// Bounds is how far the space goes.
type Bounds struct {
	Sends uint8 // of each of the two processes, over all its lives
	Kills uint8 // of both together; a killed process may start again
	Cuts  uint8 // of the power
	Locks uint8 // owner files that somebody removes under living handles
}

// Design is a protocol and the world it lives in. The zero value, but for its
// Bounds, is the intended design in an ordinary world.
type Design struct {
	Bounds

	// The world, where the intended design must hold too.

	SyncOutcomes bool // SQLiteOptions.SyncOutcomes: nothing is posted
	Outbox       bool // the operation is made by Prepare

	// Mistakes, one each.

	MintsPerSend          bool // a new key for each send after the first
	JournalsAfterSend     bool // the row is written with the end of the first attempt
	BeginNotSynced        bool // the row is committed, and not on stable storage when Begin returns
	BeginReadsThenInserts bool // two steps, no unique index
	OutcomeAtStatus       bool // settled by the status line, whatever becomes of the body
	SendsPastStop         bool // the age of the key is not looked at
	LeavesExpired         bool // an attempt that ends in doubt past the stop stays unknown
	NoMargin              bool // the client's stop is the end of the provider's retention
	NoOwners              bool // rows of living owners are claimed
	OwnerOutlivesHolder   bool // the owner stays when its process is gone
	DeathIsNoDoubt        bool // an attempt that its owner's death cut counts as not sent
	ConflictIsFinal       bool // 409 is taken for a refusal
	ConflictIsDone        bool // 409 is taken for success
	NewKeyAfterFailure    bool // a stored 500 is answered with a new key
	FailureIsFinal        bool // a stored 500 is taken for a refusal
	DeletesOnGiveUp       bool // the row goes when the call gives up
	CancelWithdraws       bool // a caller that leaves while the request is out is told "not sent"
	RefusalSettlesDoubt   bool // a 4xx is final, whatever an earlier attempt may have done
	LateWriteWins         bool // the end of an attempt is written without a look at the row's version
	LateRefusalWins       bool // a 4xx is taken from an attempt that lost its claim, whatever was sent since
	PostsRefusals         bool // withdrawn and any rejected are told before they are in the file
	SendsOtherBytes       bool // a call with other bytes under the same name goes out
	ResumesHeld           bool // resume takes held rows
	ResumesWithdrawn      bool // resume takes withdrawn rows
	ResumesNoDoubt        bool // resume leaves what is in doubt to the next call
	OutboxSaysNotSent     bool // a call of a prepared operation that fails says "not sent"

	// Servers that break the contract.

	ServerChecksThenInserts bool // the claim is not atomic
	ServerHasNoMemory       bool // nothing is stored
}
