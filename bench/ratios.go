package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idem"
	"github.com/idem-go/idem/contract"
)

var callerCounts = []int{1, 16, 64}

// againstBare: the whole durable operation against http.Client alone.
func (r *run) againstBare() error {
	return r.wholeOperation(64, func(p *provider) (subject, func() error, error) {
		return bare(p.url), func() error { return nil }, nil
	}, "durable operation against bare http.Client, 64 callers", 0.45)
}

// againstNaive: the same against a naive journal.
func (r *run) againstNaive() error {
	for i, callers := range callerCounts {
		if err := r.wholeOperation(callers, r.naiveJournal, fmt.Sprintf("durable operation against a naive journal, callers %d", callers),
			[]float64{1.5, 7, 11}[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) naiveJournal(p *provider) (subject, func() error, error) {
	s, db, err := naive(p.url, r.scratch("naive"))
	if err != nil {
		return s, nil, err
	}
	return s, db.Close, nil
}

// onASlowDisk: the same with each sync slowed by 5 ms.
func (r *run) onASlowDisk() error {
	restore, err := r.slowSyncs(5 * time.Millisecond)
	if err != nil {
		return err
	}
	defer restore()
	for i, callers := range callerCounts {
		if err := r.wholeOperation(callers, r.naiveJournal, fmt.Sprintf("the same with syncs slowed by 5 ms, callers %d", callers),
			[]float64{1.9, 14, 48}[i]); err != nil {
			return err
		}
	}
	return nil
}

// wholeOperation compares ours with another one.
func (r *run) wholeOperation(callers int, other func(*provider) (subject, func() error, error), what string, bound float64) error {
	return r.besides(func(p *provider, journal *idem.SQLiteJournal) error {
		theirs, end, err := other(p)
		if err != nil {
			return err
		}
		var ratios []float64
		err = r.compare(callers, func(loads []load) {
			ratios = append(ratios, loads[0].perSecond()/loads[1].perSecond())
		}, durable(p.url, journal), theirs)
		r.report(what, ratios, "x", bound, false)
		return errors.Join(err, end())
	})
}

// besides gives do a provider and a new journal.
func (r *run) besides(do func(*provider, *idem.SQLiteJournal) error) error {
	return r.served(func(p *provider) error {
		return r.journaled(func(journal *idem.SQLiteJournal) error { return do(p, journal) })
	})
}

// addedLatency: what one caller waits longer than bare, in syncs.
func (r *run) addedLatency() error {
	return r.besides(func(p *provider, journal *idem.SQLiteJournal) error {
		file, err := newAppendLog(r.scratch("log"))
		if err != nil {
			return err
		}
		defer file.file.Close()
		page := make([]byte, 4096)
		sync := subject{"sync", func(int64) error { return file.append(page) }}
		var ratios []float64
		err = r.compare(1, func(loads []load) {
			added := loads[0].quantile(0.5) - loads[1].quantile(0.5)
			ratios = append(ratios, float64(added)/float64(loads[2].quantile(0.5)))
		}, durable(p.url, journal), bare(p.url), sync)
		r.report("p50 added over bare against one sync of a growing file, 1 caller", ratios, "x", 1.8, true)
		return err
	})
}

// intentsAlone: the journal's Begin against an append-only file.
func (r *run) intentsAlone() (err error) {
	for i, callers := range callerCounts {
		journal, err := idem.Open(r.scratch("idem"), nil)
		if err != nil {
			return err
		}
		file, err := newAppendLog(r.scratch("log"))
		if err != nil {
			return errors.Join(err, journal.Close())
		}
		record := make([]byte, 1024)
		var ratios []float64
		err = r.compare(callers, func(loads []load) {
			ratios = append(ratios, loads[0].perSecond()/loads[1].perSecond())
		},
			subject{"intents", func(n int64) error { return r.begin(journal, n) }},
			subject{"log", func(int64) error { return file.append(record) }})
		if err := errors.Join(err, journal.Close(), file.file.Close()); err != nil {
			return err
		}
		r.report(fmt.Sprintf("intents against an append-only file, callers %d", callers), ratios, "x", []float64{1, 0.8, 0.45}[i], false)
	}
	return nil
}

// intent is a new one, of the usual size.
func intent(n int64) idem.Intent {
	now := time.Now()
	return idem.Intent{
		Operation: operation(n), Key: fmt.Sprintf("8e03978e-40d5-43e8-bc93-%012x", n), Generation: 1,
		Method: http.MethodPost, URL: "http://provider.example/charges", Provider: "keyed",
		State: idem.StateInFlight, Attempts: 1, Created: now, FirstSent: now, Expires: now.Add(23 * time.Hour),
		Fingerprint: make([]byte, 32), Place: contract.Place{Header: "Idempotency-Key"}, Retention: 24 * time.Hour,
		Request: &idem.StoredRequest{
			URL: "http://provider.example/charges", Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(payload),
		},
	}
}

func (r *run) begin(journal *idem.SQLiteJournal, n int64) error {
	_, claimed, err := journal.Begin(r.ctx, intent(n))
	if err == nil && !claimed {
		err = errors.New("a new intent was not claimed")
	}
	return err
}

// firstByte: how much later the first byte of a stream is there than without us.
func (r *run) firstByte() error {
	return r.besides(func(p *provider, journal *idem.SQLiteJournal) error {
		stream := func(name string, transport http.RoundTripper, into *[]time.Duration) subject {
			client := &http.Client{Transport: transport}
			return subject{name, func(n int64) error {
				req, err := http.NewRequestWithContext(idem.WithOperation(r.ctx, operation(n)), http.MethodPost, p.url+"/stream", strings.NewReader(payload))
				if err != nil {
					return err
				}
				resp, err := client.Do(req)
				if err != nil {
					return err
				}
				defer resp.Body.Close()
				var left int64
				if _, err := fmt.Fscanln(resp.Body, &left); err != nil {
					return err
				}
				*into = append(*into, time.Since(time.Unix(0, left)))
				_, err = io.Copy(io.Discard, resp.Body)
				return err
			}}
		}
		var ours, theirs []time.Duration
		var added []float64
		err := r.compare(1, func([]load) {
			added = append(added, (middle(ours)-middle(theirs)).Seconds()*1e3)
			ours, theirs = nil, nil
		}, stream("idem", &idem.Transport{Journal: journal, Base: base(), Contracts: contract.Keyed("Idempotency-Key", time.Hour)}, &ours),
			stream("bare", base(), &theirs))
		r.report("first byte of a stream, later than with bare", added, "ms", 1, true)
		return err
	})
}

func middle(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// unjournaled: a GET against bare.
func (r *run) unjournaled() error {
	return r.besides(func(p *provider, journal *idem.SQLiteJournal) error {
		read := func(name string, transport http.RoundTripper) subject {
			client := &http.Client{Transport: transport}
			return subject{name, func(int64) error { return take(client.Get(p.url + "/charges")) }}
		}
		var ratios []float64
		err := r.compare(1, func(loads []load) {
			ratios = append(ratios, loads[0].perSecond()/loads[1].perSecond())
		}, read("idem", &idem.Transport{Journal: journal, Base: base()}), read("bare", base()))
		r.report("GET, which is not journaled, against bare, 1 caller", ratios, "x", 0.97, false)
		return err
	})
}
