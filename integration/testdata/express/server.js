// A server with the idempotency middleware express-idempotency. It says on its
// standard output what happens, one JSON object a line, and is told on its
// standard input to let what it works on wait: "hold", and "go on". It ends when
// its input does.
'use strict';

const express = require('express');
const idempotency = require('express-idempotency');

const say = (line) => process.stdout.write(JSON.stringify(line) + '\n');

let holds = false;
let waiting = [];

const app = express();
app.use(express.json());
app.use((req, res, next) => {
  say({ arrived: req.get('Idempotency-Key') || '' });
  next();
});
app.use(idempotency.idempotency());

app.post('/charges', async (req, res) => {
  if (idempotency.getSharedIdempotencyService().isHit(req)) {
    return; // the middleware has answered
  }
  say({ working: true });
  if (holds) {
    await new Promise((goOn) => waiting.push(goOn));
  }
  say({ effect: req.get('Idempotency-Key') || '' });
  res.status(201).type('application/json').send(JSON.stringify({ id: 'ch_1', amount: req.body.amount }));
});

// The middleware sets the status and leaves the answer to a handler of errors.
app.use((err, req, res, next) => {
  if (res.headersSent) {
    next(err);
    return;
  }
  res.type('text/plain').send(err.message);
});

const server = app.listen(0, '127.0.0.1', () => say({ port: server.address().port }));

require('readline')
  .createInterface({ input: process.stdin })
  .on('line', (line) => {
    holds = line === 'hold';
    if (!holds) {
      waiting.forEach((goOn) => goOn());
      waiting = [];
    }
    say({ holds });
  })
  .on('close', () => process.exit(0));
