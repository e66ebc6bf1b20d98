// Package faultinjection is a provider that fails on purpose, for tests of
// programs that call one. It answers the question that a mock cannot: after
// lost requests, lost answers, crashes and retries, how often did it happen?
//
//	ledger, err := faultinjection.OpenLedger("")
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer ledger.Close()
//	server := faultinjection.NewServer(contract.Keyed("Idempotency-Key", 24*time.Hour), ledger)
//	server.Plan(faultinjection.DieAfterEffect) // the first answer is lost
//
//	client := &http.Client{Transport: server.Transport()}
//	for {
//		req, err := http.NewRequest("POST", "http://api.example/charges", strings.NewReader(`{"order":"order-42"}`))
//		if err != nil {
//			log.Fatal(err)
//		}
//		req.Header.Set("Idempotency-Key", "8e03978e-40d5-43e8-bc93-6894a57f9324")
//		resp, err := client.Do(req)
//		if err != nil {
//			continue // sent, perhaps executed: the same key is the only safe answer
//		}
//		resp.Body.Close()
//		break
//	}
//	n, err := ledger.EffectsOf("order-42") // 1
//
// # How one test goes
//
//  1. A [Ledger] opens: the file that counts. It outlives the server and can be
//     read by another process.
//  2. A [Server] is made from a contract: it keeps keys as that provider does.
//     [Server.Plan] says how each arrival is to fail.
//  3. The code under test calls it, through [Server.Transport] (no socket, works
//     in virtual time) or at a loopback port from [Server.Listen].
//  4. [Ledger.Counts] and [Ledger.EffectsOf] say what really happened. Duplicates
//     must be zero, and every operation reported as done must have one effect.
//     [Ledger.Check] compares it with the client's journal in one call.
//
// # What else can fail
//
// A [Script] stands in front of any RoundTripper and drops, cuts, delays or
// answers attempts, in virtual time. A [Proxy] does it to real connections. A
// [CrashLoop] starts your own program again and again and kills it, at random or
// where [KillAt] says. An [Explorer] tries every script of a few answers with a
// crash at every point. Package diskfault fails, cuts and records what SQLite does
// to the disk.
//
// A test that cannot fail proves nothing: run it once with [Server.Broken], or
// with a nil contract, and see it fail. [Seed] is that experiment in small.
//
// # Caveats
//
// It is for tests only. The ledger holds headers and bodies in clear text, the
// server has one account and no authentication, and it listens on loopback
// only. Ledger, server and transport belong to one [testing/synctest] bubble if
// they are used in one.
package faultinjection
