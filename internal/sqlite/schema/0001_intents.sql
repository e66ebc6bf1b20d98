-- Instants are Unix nanoseconds UTC and waits are nanoseconds; 0 is "not set".

-- Facts of the file: journal (its id), salt; epoch and next, by which a copy is
-- noticed; clock, the highest wall time seen.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Living handles, and dead ones that a status row still names. Ids are never
-- given twice.
CREATE TABLE owner (
  id    INTEGER PRIMARY KEY AUTOINCREMENT,
  token TEXT NOT NULL UNIQUE,
  CONSTRAINT owner_token CHECK (length(token) = 32)
) STRICT;

-- What is to take effect. Written once; only pruning takes the request away,
-- and a new call of a withdrawn operation puts it back. Generation 0 is the
-- empty shell of a removed row whose id was the highest.
CREATE TABLE intent (
  id          INTEGER PRIMARY KEY,
  scope       TEXT NOT NULL,
  operation   TEXT,              -- NULL: unnamed
  generation  INTEGER NOT NULL,
  key         TEXT NOT NULL,
  adopted     BLOB,              -- NULL: the key is ours
  credential  BLOB,
  name        TEXT NOT NULL,
  provider    TEXT NOT NULL,
  method      TEXT NOT NULL,
  url         TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  place       TEXT NOT NULL,     -- header; '': nowhere
  encoding    TEXT NOT NULL,
  retention   INTEGER NOT NULL,
  renews      TEXT NOT NULL,
  withheld    TEXT NOT NULL,     -- JSON list of header names; '': none
  created     INTEGER NOT NULL,
  head_sum    INTEGER NOT NULL,  -- CRC-32C of what identifies it
  request_sum INTEGER NOT NULL,  -- CRC-32C of what follows
  target      TEXT,              -- NULL: no request, or pruned
  host        TEXT,
  header      BLOB,
  body        BLOB,
  CONSTRAINT intent_operation CHECK (operation <> ''),
  CONSTRAINT intent_generation CHECK (generation >= 0),
  CONSTRAINT intent_adopted CHECK (length(adopted) > 0),
  CONSTRAINT intent_request CHECK (
    (target IS NULL) = (host IS NULL) AND (target IS NULL) = (header IS NULL) AND (target IS NULL) = (body IS NULL))
) STRICT;

CREATE UNIQUE INDEX intent_operation ON intent (scope, operation, generation) WHERE operation IS NOT NULL;
CREATE UNIQUE INDEX intent_adopted ON intent (adopted) WHERE adopted IS NOT NULL;
CREATE INDEX intent_shell ON intent (generation) WHERE generation = 0;

-- Where each intent stands: the small hot table, updated in place. (Lists of
-- more than two values would make a temporary table at every write: hence OR.)
CREATE TABLE status (
  id          INTEGER PRIMARY KEY REFERENCES intent (id),
  version     INTEGER NOT NULL,
  state       TEXT NOT NULL,
  doubt       INTEGER NOT NULL,
  hold_reason TEXT NOT NULL,
  owner       INTEGER REFERENCES owner (id),
  attempts    INTEGER NOT NULL,
  deaths      INTEGER NOT NULL,
  resumes     INTEGER NOT NULL,
  began       INTEGER NOT NULL,  -- start of the attempt in flight
  prepared    INTEGER NOT NULL,
  notify      INTEGER NOT NULL,
  first_sent  INTEGER NOT NULL,
  due         INTEGER NOT NULL,
  wait        INTEGER NOT NULL,
  expires     INTEGER NOT NULL,
  settled     INTEGER NOT NULL,
  decider     TEXT NOT NULL,
  note        TEXT NOT NULL,
  kept        INTEGER NOT NULL,  -- 0: bodies pruned
  -- 1: something may be done about it. 2: a person must. NULL: closed.
  open INTEGER GENERATED ALWAYS AS (CASE
    WHEN (state = 'pending' OR state = 'in_flight' OR state = 'unknown') OR owner IS NOT NULL OR notify = 1 THEN 1
    WHEN state = 'held' THEN 2 END) VIRTUAL,
  -- Since when it is closed with its bodies still there.
  ripe INTEGER GENERATED ALWAYS AS (CASE
    WHEN kept = 1 AND owner IS NULL AND notify = 0 AND (state = 'succeeded' OR state = 'rejected' OR state = 'withdrawn') THEN settled END) VIRTUAL,
  CONSTRAINT status_state CHECK ((state = 'pending' OR state = 'in_flight' OR state = 'unknown' OR state = 'held' OR state = 'withdrawn' OR state = 'succeeded' OR state = 'rejected')),
  CONSTRAINT status_bits CHECK (doubt BETWEEN 0 AND 1 AND prepared BETWEEN 0 AND 1 AND notify BETWEEN 0 AND 1 AND kept BETWEEN 0 AND 1),
  CONSTRAINT status_counts CHECK (version >= 1 AND attempts >= 0 AND deaths >= 0 AND resumes >= 0 AND wait >= 0),
  CONSTRAINT status_instants CHECK (began >= 0 AND first_sent >= 0 AND due >= 0 AND expires >= 0 AND settled >= 0),
  -- In flight with a reason: held as soon as its owner is dead.
  CONSTRAINT status_held CHECK (CASE state
    WHEN 'held' THEN hold_reason <> ''
    WHEN 'in_flight' THEN 1
    ELSE hold_reason = '' END),
  CONSTRAINT status_doubt CHECK (CASE state
    WHEN 'unknown' THEN doubt = 1
    WHEN 'held' THEN 1
    WHEN 'in_flight' THEN 1
    ELSE doubt = 0 END),
  CONSTRAINT status_flight CHECK (state <> 'in_flight' OR (attempts >= 1 AND began > 0)),
  CONSTRAINT status_settled CHECK ((state <> 'succeeded' AND state <> 'rejected' AND state <> 'withdrawn' AND state <> 'held') OR settled > 0),
  CONSTRAINT status_final CHECK ((state <> 'succeeded' AND state <> 'rejected') OR owner IS NULL OR notify = 1)
) STRICT;

CREATE INDEX status_open ON status (open, owner, due) WHERE open IS NOT NULL;
CREATE INDEX status_ripe ON status (ripe) WHERE ripe IS NOT NULL;

-- The response that made an intent final. Written once; pruning takes the body.
CREATE TABLE outcome (
  id          INTEGER PRIMARY KEY REFERENCES intent (id),
  status_code INTEGER NOT NULL,
  complete    INTEGER NOT NULL,
  replayed    INTEGER NOT NULL,
  request_id  TEXT NOT NULL,
  head_sum    INTEGER NOT NULL,  -- CRC-32C of status_code, request_id, header
  body_sum    INTEGER NOT NULL,  -- CRC-32C of body
  header      BLOB NOT NULL,
  body        BLOB,              -- NULL: not kept, or pruned
  CONSTRAINT outcome_bits CHECK (complete BETWEEN 0 AND 1 AND replayed BETWEEN 0 AND 1),
  CONSTRAINT outcome_complete CHECK (complete = 0 OR body IS NOT NULL)
) STRICT;

CREATE TABLE attempt (
  intent      INTEGER NOT NULL REFERENCES intent (id),
  number      INTEGER NOT NULL,
  started     INTEGER NOT NULL,
  ended       INTEGER NOT NULL,  -- 0: it was cut
  phase       TEXT NOT NULL,
  status_code INTEGER NOT NULL,
  decision    TEXT NOT NULL,
  error       TEXT NOT NULL,
  PRIMARY KEY (intent, number),
  CONSTRAINT attempt_number CHECK (number >= 1)
) STRICT, WITHOUT ROWID;
