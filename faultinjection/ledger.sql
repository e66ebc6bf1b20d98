-- The ledger of effects. Instants are Unix nanoseconds, UTC.

-- One row for each request seen, in order of arrival.
CREATE TABLE arrival (
	number    INTEGER PRIMARY KEY AUTOINCREMENT,
	operation TEXT    NOT NULL,
	keys      TEXT    NOT NULL, -- JSON array: the key header's values as they came
	method    TEXT    NOT NULL,
	uri       TEXT    NOT NULL,
	host      TEXT    NOT NULL,
	header    TEXT    NOT NULL, -- JSON object of arrays
	body      BLOB    NOT NULL,
	at        INTEGER NOT NULL,
	step      TEXT    NOT NULL DEFAULT '',
	outcome   TEXT    NOT NULL DEFAULT ''
) STRICT;

-- One row for each change in the world. A correct server makes one for a key.
CREATE TABLE effect (
	number    INTEGER PRIMARY KEY AUTOINCREMENT,
	arrival   INTEGER NOT NULL,
	operation TEXT    NOT NULL,
	key       TEXT    NOT NULL, -- empty: the request was not keyed
	body      BLOB    NOT NULL,
	at        INTEGER NOT NULL
) STRICT;

CREATE INDEX effect_by_operation ON effect (operation);

-- The key store. The primary key is what makes a claim atomic.
CREATE TABLE claim (
	scope       TEXT    NOT NULL,
	key         TEXT    NOT NULL,
	fingerprint TEXT    NOT NULL,
	arrival     INTEGER NOT NULL, -- the request that holds it
	state       TEXT    NOT NULL,
	status      INTEGER,
	header      TEXT,
	body        BLOB,
	claimed_at  INTEGER NOT NULL,
	finished_at INTEGER,
	PRIMARY KEY (scope, key),
	CONSTRAINT claim_state CHECK (state IN ('in_flight', 'done')),
	CONSTRAINT claim_done_has_answer CHECK ((state = 'done') = (status IS NOT NULL AND finished_at IS NOT NULL))
) STRICT;
