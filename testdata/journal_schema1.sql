-- A journal of schema 1 whose process was killed: one operation in each state.

INSERT INTO meta (name, value)
VALUES ('clock', '946684800000000000');

INSERT INTO meta (name, value)
VALUES ('epoch', '912ea49045406d86c7baa495c2f0d97c');

INSERT INTO meta (name, value)
VALUES ('journal', 'bf0f9d9bfbdf806d458fd959525337c5');

INSERT INTO meta (name, value)
VALUES ('next', '912ea49045406d86c7baa495c2f0d97c');

INSERT INTO meta (name, value)
VALUES ('salt', '996a02a211dc7ba04d37aa60ec8c0f5a');

INSERT INTO owner (id, token)
VALUES (1, 'ef6007500101242f4caa1e6eea9f15cf');

INSERT INTO intent (id, scope, operation, generation, key, adopted, credential, name, provider, method, url, fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body)
VALUES (1, 'acct', 'prepared-1', 1, '24749946-dec9-413b-8cb4-f574fda80671', NULL, NULL, 'main', 'keyed', 'POST', 'http://provider.example/charges', X'1CF7372CF074666DFA60614CA7E10CE7AD84F1FC7409EB4DFD2C9C2E10932F36', 'Idempotency-Key', '', 86400000000000, '', '["Authorization"]', 946684800000000000, 2400972985, 2614715688, 'http://provider.example/charges', 'gateway.example', X'01020C436F6E74656E742D5479706502106170706C69636174696F6E2F6A736F6E0B582D4F7065726174696F6E020A70726570617265642D31', X'7B226F72646572223A2270726570617265642D31222C22616D6F756E74223A343230307D');

INSERT INTO intent (id, scope, operation, generation, key, adopted, credential, name, provider, method, url, fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body)
VALUES (2, 'acct', 'plain-1', 1, '88e9cadf-25cb-486e-9a0a-f82f2950167f', NULL, NULL, 'main', 'keyed', 'POST', 'http://provider.example/charges', X'254585C2EFAFE0EF059F66F7CDDB5FB886F8EB7C6D7C746469F2BAD5C45A513D', 'Idempotency-Key', '', 86400000000000, '', '["Authorization"]', 946684800000000000, 1888997066, 25738722, 'http://provider.example/charges', 'gateway.example', X'01020C436F6E74656E742D5479706502106170706C69636174696F6E2F6A736F6E0B582D4F7065726174696F6E0207706C61696E2D31', X'7B226F72646572223A22706C61696E2D31222C22616D6F756E74223A343230307D');

INSERT INTO intent (id, scope, operation, generation, key, adopted, credential, name, provider, method, url, fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body)
VALUES (3, 'acct', 'lost-1', 1, '3ebd8439-bc89-492f-b309-4a4e4cf15cb9', NULL, NULL, 'main', 'keyed', 'POST', 'http://provider.example/charges', X'E3536F81529F7E67EC7069515E0AEC21B69E95D4B6732A01158324D5CD9F0A17', 'Idempotency-Key', '', 86400000000000, '', '["Authorization"]', 946684800000000000, 139655732, 4244249783, 'http://provider.example/charges', 'gateway.example', X'01020C436F6E74656E742D5479706502106170706C69636174696F6E2F6A736F6E0B582D4F7065726174696F6E02066C6F73742D31', X'7B226F72646572223A226C6F73742D31222C22616D6F756E74223A343230307D');

INSERT INTO intent (id, scope, operation, generation, key, adopted, credential, name, provider, method, url, fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body)
VALUES (4, 'acct', 'reject-1', 1, '2b6bbd89-62fa-46c6-9efc-bc2cd9b488ff', NULL, NULL, 'main', 'keyed', 'POST', 'http://provider.example/charges', X'B8725853B77A7700D9D501E7C1F28265B0E24F427EA82D57F323247155AEF413', 'Idempotency-Key', '', 86400000000000, '', '["Authorization"]', 946684800004747472, 1668567692, 3667370143, 'http://provider.example/charges', 'gateway.example', X'01020C436F6E74656E742D5479706502106170706C69636174696F6E2F6A736F6E0B582D4F7065726174696F6E020872656A6563742D31', X'7B226F72646572223A2272656A6563742D31222C22616D6F756E74223A343230307D');

INSERT INTO intent (id, scope, operation, generation, key, adopted, credential, name, provider, method, url, fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body)
VALUES (5, 'acct', 'refused-1', 1, '0db55f64-247e-4459-8f54-64b6d720b01b', NULL, NULL, 'main', 'keyed', 'POST', 'http://provider.example/charges', X'260B8CDDC2EA5A94554E8D2B757D4125C0F5DC7080F464E8D822AEEB123ED88C', 'Idempotency-Key', '', 86400000000000, '', '["Authorization"]', 946684800004747472, 923173236, 3225032314, 'http://provider.example/charges', 'gateway.example', X'01020C436F6E74656E742D5479706502106170706C69636174696F6E2F6A736F6E0B582D4F7065726174696F6E0209726566757365642D31', X'7B226F72646572223A22726566757365642D31222C22616D6F756E74223A343230307D');

INSERT INTO intent (id, scope, operation, generation, key, adopted, credential, name, provider, method, url, fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body)
VALUES (6, 'acct', 'moved-1', 1, '213ebb77-7836-44e6-8c69-dfc2182404e6', NULL, NULL, 'main', 'keyed', 'POST', 'http://provider.example/charges', X'D2CC48F63E7F03E6BA5DD8C7EC4B2DEF672F085A954315C75DB94DBB9254BEB3', 'Idempotency-Key', '', 86400000000000, '', '["Authorization"]', 946684800009588844, 3071873633, 3660193306, 'http://provider.example/charges', 'gateway.example', X'01020C436F6E74656E742D5479706502106170706C69636174696F6E2F6A736F6E0B582D4F7065726174696F6E02076D6F7665642D31', X'7B226F72646572223A226D6F7665642D31222C22616D6F756E74223A343230307D');

INSERT INTO intent (id, scope, operation, generation, key, adopted, credential, name, provider, method, url, fingerprint, place, encoding, retention, renews, withheld, created, head_sum, request_sum, target, host, header, body)
VALUES (7, 'acct', 'flight-1', 1, '679d2d90-a576-41ec-ab10-ef21e45befaa', NULL, NULL, 'main', 'keyed', 'POST', 'http://provider.example/charges', X'8AB1CCD71FC041D3EF422C5C53C05D5F451B1833ADCCFE7E84F5E4ED7BDF58FD', 'Idempotency-Key', '', 86400000000000, '', '["Authorization"]', 946684800009588844, 1137173500, 1130759204, 'http://provider.example/charges', 'gateway.example', X'01020C436F6E74656E742D5479706502106170706C69636174696F6E2F6A736F6E0B582D4F7065726174696F6E0208666C696768742D31', X'7B226F72646572223A22666C696768742D31222C22616D6F756E74223A343230307D');

INSERT INTO status (id, version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify, first_sent, due, wait, expires, settled, decider, note, kept)
VALUES (1, 2, 'pending', 0, '', NULL, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, '', '', 1);

INSERT INTO status (id, version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify, first_sent, due, wait, expires, settled, decider, note, kept)
VALUES (2, 2, 'succeeded', 0, '', NULL, 1, 0, 0, 946684800000000000, 0, 0, 946684800000000000, 0, 0, 946770600000000000, 946684800000000000, '', '', 1);

INSERT INTO status (id, version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify, first_sent, due, wait, expires, settled, decider, note, kept)
VALUES (3, 6, 'unknown', 1, '', NULL, 3, 0, 0, 946684800004747472, 0, 0, 946684800000000000, 946684800008793802, 4046330, 946770600000000000, 0, '', '', 1);

INSERT INTO status (id, version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify, first_sent, due, wait, expires, settled, decider, note, kept)
VALUES (4, 2, 'rejected', 0, '', NULL, 1, 0, 0, 946684800004747473, 0, 0, 946684800004747472, 0, 0, 946770600004747472, 946684800004747472, '', '', 1);

INSERT INTO status (id, version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify, first_sent, due, wait, expires, settled, decider, note, kept)
VALUES (5, 6, 'withdrawn', 0, '', NULL, 3, 0, 0, 946684800009588844, 0, 0, 0, 0, 0, 0, 946684800009588844, '', '', 1);

INSERT INTO status (id, version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify, first_sent, due, wait, expires, settled, decider, note, kept)
VALUES (6, 2, 'held', 1, 'redirect', NULL, 1, 0, 0, 946684800009588845, 0, 0, 946684800009588844, 0, 0, 946770600009588844, 946684800009588844, '', '', 1);

INSERT INTO status (id, version, state, doubt, hold_reason, owner, attempts, deaths, resumes, began, prepared, notify, first_sent, due, wait, expires, settled, decider, note, kept)
VALUES (7, 1, 'in_flight', 0, '', 1, 1, 0, 0, 946684800009588846, 0, 0, 946684800009588844, 0, 0, 946770600009588844, 0, '', '', 1);

INSERT INTO outcome (id, status_code, complete, replayed, request_id, head_sum, body_sum, header, body)
VALUES (2, 201, 1, 0, '', 170247620, 1295360995, X'0102084C6F636174696F6E020A2F656C7365776865726504582D4F660207706C61696E2D31', X'7B226F66223A22706C61696E2D31227D');

INSERT INTO outcome (id, status_code, complete, replayed, request_id, head_sum, body_sum, header, body)
VALUES (4, 402, 1, 0, '', 42737474, 1317582994, X'0102084C6F636174696F6E020A2F656C7365776865726504582D4F66020872656A6563742D31', X'7B226F66223A2272656A6563742D31227D');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (2, 1, 946684800000000000, 946684800000000000, 'answered', 201, 'succeeded', '');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (3, 1, 946684800000000000, 946684800000000000, 'maybe_sent', 0, 'no_answer', 'connection reset by peer');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (3, 2, 946684800001660099, 946684800001660099, 'maybe_sent', 0, 'no_answer', 'connection reset by peer');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (3, 3, 946684800004747472, 946684800004747472, 'maybe_sent', 0, 'no_answer', 'connection reset by peer');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (4, 1, 946684800004747472, 946684800004747472, 'answered', 402, 'rejected', '');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (5, 1, 946684800004747472, 946684800004747472, 'not_sent', 0, 'not_sent', 'not sent: connection refused');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (5, 2, 946684800005846602, 946684800005846602, 'not_sent', 0, 'not_sent', 'not sent: connection refused');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (5, 3, 946684800009588844, 946684800009588844, 'not_sent', 0, 'not_sent', 'not sent: connection refused');

INSERT INTO attempt (intent, number, started, ended, phase, status_code, decision, error)
VALUES (6, 1, 946684800009588844, 946684800009588844, 'answered', 302, 'redirect', '');

