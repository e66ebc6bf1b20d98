// Package model is the protocol of package idem as a small state machine, and
// an exhaustive breadth-first search through it. Two processes call and resume
// one operation; every order of their steps, of the server's, of kills, power
// cuts, late requests and the key's age is looked at, up to the [Bounds].
// Nothing imports it: its tests are its use.
//
//	go test ./internal/model                  # CI: seconds, 150 MB
//	IDEM_MODEL=deep go test ./internal/model  # more sends, kills, cuts: a minute or two, 1 GB
//	go test -v -run Mistakes ./internal/model # the shortest way to each disaster, in words
//
// The zero [Design] is the intended one and must break none of the [Rules]
// anywhere. Each known mistake is a field of Design and must break the rule
// that its test names; with that rule silenced, the search goes on to what a
// customer would feel of it: two effects, an effect that nobody knows of, "not
// sent" about what took effect. The sizes of the spaces are pinned, so that a
// model that silently explores less fails.
//
// # What is modelled
//
//   - Two processes that call or resume, may be killed at each step and start
//     again as another owner; a bounded number of sends of each. A process
//     without sends left stands for a call or resume with its attempts used up.
//   - A file, and what of it is on stable storage. Begin, count and most ends
//     are synced; a mere claim is not; proven outcomes are posted: told first,
//     written a step later, synced later still. A kill loses what is posted, a
//     power cut what is not synced.
//   - A network that loses requests and answers, cuts bodies, and delivers a
//     request after its sender has timed out, was cancelled or died.
//   - A server that claims a key atomically, executes for a while (409 for all
//     others), and stores effect and answer together: 200, a 500 after or
//     without an effect, a 4xx; or that breaks off and takes everything back. A
//     gateway before it that answers 4xx and 429 by itself.
//   - The key's age: young, past the client's stop, forgotten by the provider.
//     A long enough margin is the assumption that nothing that passed the check
//     in time is still on its way when the provider forgets.
//   - A person who releases, resolves and gives up, and tells the truth.
//   - Owner files that are removed under a living process: the one way to lose a
//     claim without dying.
//
// What a step records and what it tells are one step: a process that dies in
// between has only told less.
//
// # What is not
//
// One operation, one generation, one request: no renewal, no adopted keys, no
// unnamed calls, no other operations. No waits, due times, back-off, budgets and
// counts: when to send again is free, and that covers every policy. No deaths
// and poison. No redirects, no streams, no hidden resends of net/http, no
// credentials. No failing journal writes, checksums, copied files and clocks
// that run backwards: those are for tests of the real code. No verifier, OnSettled and pruning. No person who errs, and no
// ReleaseExpired, whose purpose is to risk a second effect. The server does not
// compare bytes. Requests that nobody waits for differ by their key only.
//
// # Where it is in the code
//
//	process             a journal handle: journal_sqlite.go, internal/sqlite; its owner: internal/owner
//	call, resume        exchange.go, claim.go; resume.go, sweep.go
//	begin, claim        Journal.Begin, ClaimDue: internal/sqlite/begin.go, due.go
//	admission           admit and lastSend: settle.go
//	count               exchange.count: exchange.go
//	send, cut, body     Transport.send: transport.go; wire.go; response.go
//	settle, conclude    the functions of these names: settle.go; end.go
//	again               exchange.next: exchange.go
//	record              exchange.record, mustSync: end.go, settle.go
//	write               Journal.Update and its late answers: internal/sqlite/update.go
//	put, disk, posted   the commit loop: internal/sqlite/commit.go, queue.go
//	die, dead           the owner's lock: internal/owner
//	decisions           decide.go
//
// The points at which a kill finds a process are those of idem.CrashPoints:
// idle is begin, counted is begun or send, claimed is wait, admitted is count,
// waiting and running are written, ended is answered or record, and posted is
// recorded before it is in the file.
package model
