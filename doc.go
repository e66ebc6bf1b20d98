// Package idem makes retries safe from the caller's side: one logical operation
// has one idempotency key, on every retry and after every restart.
//
//	journal, err := idem.Open("payments.db", nil)
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer journal.Close()
//	api := contract.Keyed("Idempotency-Key", 24*time.Hour).At("api.example.com")
//	client := idem.NewClient(&idem.Transport{Journal: journal, Contracts: api})
//	req, err := http.NewRequest("POST", "https://api.example.com/charges", strings.NewReader(`{"amount":4200}`))
//	if err != nil {
//		log.Fatal(err)
//	}
//	resp, err := client.Do("order-42/charge", req)
//	if errors.Is(err, idem.ErrUnknownOutcome) {
//		log.Fatal("not settled yet; run again, or decide if held: ", err)
//	}
//	if err != nil {
//		log.Fatal(err) // this call executed nothing; err says why
//	}
//	defer resp.Body.Close()
//	log.Print(resp.Status)
//
// Run it twice, kill it anywhere, lose any answer: the provider sees one key,
// and charges once.
//
// # How one operation goes
//
//  1. [Transport] looks the operation's name up in the journal. If it is new, a
//     key is minted and written with the request to a local SQLite file, which
//     is synced. Only then the first byte leaves.
//  2. The attempt ends, in an answer, an error or silence. What that means is
//     judged by the provider's contract (package contract): settled, or in
//     doubt.
//  3. What is not settled is sent again after a wait, with the same key and the
//     same bytes, as long as the provider remembers the key.
//  4. The outcome is recorded and the answer handed over. A later call of the
//     same operation gets the recorded answer without a send.
//
// A process that dies in between leaves the intent in the journal.
// [Client.Resume] in the next one finishes it, and so does calling the
// operation again. What must not be sent by itself is held, with a reason, until
// a person decides: [Client.Resolve], [Client.Release], [Client.Withdraw].
//
// # Errors
//
// A call of an operation ends in one of four ways: with the answer that settled
// it; in [ErrNotSent], when nothing was executed, and nothing will be without
// another call; in [ErrUnknownOutcome], when it may have been executed or may
// yet be, which must never be read as failed; or with an error that matches
// neither: the operation is final but this call cannot have its answer
// ([ErrNotKept]), or its name stands for another request ([ErrMismatch], whose
// State tells of that one). That is so for [Client.Do] and [Client.Continue].
// RoundTrip, and so every SDK, gets whatever the server answered as a response;
// [WithResult] and [ResultFrom] say what it means.
//
// # Caveats
//
// An operation's name stands for one request, for ever: give another amount
// another name. Names are readable in the journal.
//
// Keys protect as far as the server keeps its contract: it must claim a key
// atomically, and it forgets keys after a while. Where no contract is known,
// nothing that may have been delivered is sent again, and the error says so.
//
// Credentials in headers, in a URL's user info, and in query parameters whose
// names say so are never stored; a resumed request gets new ones from
// [Client.Authorize] or from the base transport. A sealed journal stores the
// query whole.
//
// Bodies are stored in clear text, in files of mode 0600, or sealed where
// [SQLiteOptions] has a Sealer; docs/security.md says what is protected from
// whom. The journal is one file with its side files ("-wal", "-shm", and a
// folder "-owners"): they belong together, on one machine and a local file
// system. Any number of processes may share it.
package idem
