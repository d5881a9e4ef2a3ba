// RocketMQ's Node.js client of gRPC, as npm has it, against a proxy or a broker.
//
// Arguments: ENDPOINTS SCENARIO...; topics and groups have the names `node-SCENARIO` and must
// exist. It prints a line of JSON for each check, as support/suites.py reads them.

'use strict';

const { ConsumeResult, FilterExpression, Producer, PushConsumer, SimpleConsumer } =
  require('rocketmq-client-nodejs');

const [endpoints, ...wanted] = process.argv.slice(2);
const COUNT = 40;
const DELIVERY_MS = 45_000;
const QUIET_MS = 3_000;
const RUN_MS = 120_000;
const [COMMIT, ROLLBACK] = [1, 2]; // of TransactionResolution
const silent = { info() {}, warn() {}, error() {}, debug() {}, close() {} };
const of = { endpoints, namespace: '', requestTimeout: 10_000, logger: silent };

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const numbers = (views) => views.map((view) => Number(view.body.toString()));
const ordered = (values) => [...values].sort((one, other) => one - other);
const upTo = (count) => [...Array(count).keys()];

class Report {
  constructor(scenario) {
    this.scenario = scenario;
    this.began = Date.now();
  }

  check(what, ok, detail = '') {
    const after = Date.now() - this.began;
    this.print({ kind: 'check', what, ok: Boolean(ok), after_ms: after, detail: String(detail) });
  }

  equal(what, expected, found) {
    const [one, other] = [JSON.stringify(expected), JSON.stringify(found)];
    this.check(what, one === other, `wanted ${one}, found ${other}`);
  }

  print(line) {
    console.log(JSON.stringify({ scenario: this.scenario, ...line }));
  }
}

async function within(condition) {
  for (const deadline = Date.now() + DELIVERY_MS; Date.now() < deadline; await sleep(20)) {
    if (await condition()) {
      return true;
    }
  }
  return false;
}

function message(topic, number, more = {}) {
  const tag = ['red', 'green', 'blue'][number % 3];
  const properties = new Map([['number', String(number)]]);
  const body = Buffer.from(String(number));
  return { topic, tag, keys: [`key-${number}`], properties, body, ...more };
}

/** Starts the clients in `made`, runs `work` with them, and shuts them down. */
async function using(made, work) {
  for (const one of made) {
    await one.startup();
  }
  try {
    return await work(...made);
  } finally {
    for (const one of made) {
      await one.shutdown();
    }
  }
}

function pusher(topic, came, refuses = () => false, expression = FilterExpression.SUB_ALL) {
  const messageListener = {
    consume(view) {
      const refused = refuses(view);
      came.push(view);
      return refused ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    },
  };
  const subscriptions = new Map([[topic, expression]]);
  return new PushConsumer({ ...of, consumerGroup: topic, subscriptions, messageListener });
}

const producer = (topic, more = {}) => new Producer({ ...of, topic, ...more });

/** Acknowledged messages are not redelivered; the others are, after the changed time. */
async function simple(report, topic) {
  const subscriptions = new Map([[topic, FilterExpression.SUB_ALL]]);
  const consuming = { ...of, consumerGroup: topic, subscriptions, awaitDuration: 3_000 };
  await using([producer(topic), new SimpleConsumer(consuming)], async (sender, consumer) => {
    const ids = [];
    for (const number of upTo(COUNT)) {
      ids.push((await sender.send(message(topic, number))).messageId);
    }
    const came = [];
    let left;
    await within(async () => {
      for (const view of await consumer.receive(16, 90_000)) {
        came.push(view);
        if (numbers([view])[0] === 5) {
          left = view;
        } else {
          await consumer.ack(view);
        }
      }
      return came.length >= COUNT;
    });
    report.equal('each comes once', upTo(COUNT), ordered(numbers(came)));
    report.equal('by the ids that sends returned', ids.sort(), came.map((one) => one.messageId).sort());
    const changed = Date.now();
    await consumer.changeInvisibleDuration(left, 10_000);
    const again = [];
    await within(async () => again.push(...await consumer.receive(16, 90_000)) > 0);
    const waited = Date.now() - changed;
    report.equal('what is left comes again', [5], numbers(again));
    report.check('after the changed time', waited >= 9_500 && waited < 45_000, waited);
    for (const view of again) {
      await consumer.ack(view);
    }
  });
}

/** All messages arrive, and a message that is refused once arrives again, with all attributes. */
async function push(report, topic) {
  const came = [];
  const refuses = (view) => numbers([view])[0] === 7 && view.deliveryAttempt === 1;
  await using([producer(topic), pusher(topic, came, refuses)], async (sender) => {
    for (const number of upTo(COUNT)) {
      await sender.send(message(topic, number));
    }
    await within(() => came.length > COUNT);
    report.equal('each of them', upTo(COUNT), ordered(new Set(numbers(came))));
    const tries = came.filter((view) => numbers([view])[0] === 7);
    report.equal('attempts are counted', [1, 2], tries.map((view) => view.deliveryAttempt));
    const one = came.find((view) => numbers([view])[0] === 4);
    report.equal('with its tag, property, key and topic', ['green', '4', ['key-4'], topic],
      [one.tag, one.properties.get('number'), one.keys, one.topic]);
  });
}

/** The messages that pass the filter arrive. */
async function tags(report, topic) {
  const came = [];
  const consumer = pusher(topic, came, () => false, new FilterExpression('red || blue'));
  await using([producer(topic), consumer], async (sender) => {
    for (const number of upTo(COUNT)) {
      await sender.send(message(topic, number));
    }
    const passing = upTo(COUNT).filter((number) => number % 3 !== 1);
    await within(() => came.length >= passing.length);
    await sleep(QUIET_MS);
    report.equal('those that pass come', passing, ordered(numbers(came)));
  });
}

/** Each message group arrives in order. */
async function fifo(report, topic) {
  const came = [];
  await using([producer(topic), pusher(topic, came)], async (sender) => {
    for (const number of upTo(COUNT)) {
      await sender.send(message(topic, number, { messageGroup: `group-${number % 4}` }));
    }
    await within(() => came.length >= COUNT);
    for (const group of upTo(4)) {
      const own = (values) => values.filter((number) => number % 4 === group);
      report.equal(`group ${group} in its order`, own(upTo(COUNT)), own(numbers(came)));
    }
  });
}

/** A message arrives at its delivery time, a recalled message never. */
async function delay(report, topic) {
  const came = [];
  await using([producer(topic), pusher(topic, came)], async (sender) => {
    const due = Date.now() + 6_000;
    const more = { deliveryTimestamp: new Date(due) };
    const receipts = [];
    for (const number of upTo(5)) {
      receipts.push(await sender.send(message(topic, number, more)));
    }
    await sender.recallMessage(topic, receipts[4].recallHandle);
    await within(() => came.length >= 4);
    const late = Date.now() - due;
    await sleep(QUIET_MS);
    report.equal('all come but the recalled one', [0, 1, 2, 3], ordered(numbers(came)));
    report.check('when they are due', late > -1_000 && late < 5_000, late);
  });
}

/** A commit shows the message, a rollback does not; open transactions are checked. */
async function transaction(report, topic) {
  const [came, asked] = [[], []];
  const checker = {
    async check(view) {
      const [number] = numbers([view]);
      asked.push(number);
      return number % 2 === 0 ? COMMIT : ROLLBACK;
    },
  };
  await using([producer(topic, { checker }), pusher(topic, came)], async (sender) => {
    for (const number of upTo(4)) {
      const opened = sender.beginTransaction();
      await sender.send(message(topic, number), opened);
      if (number < 2) {
        await (number === 0 ? opened.commit() : opened.rollback());
      }
    }
    await within(() => new Set(asked).size >= 2 && new Set(numbers(came)).size >= 2);
    await sleep(QUIET_MS);
    report.equal('what is committed comes', [0, 2], ordered(new Set(numbers(came))));
    report.equal('what is open is asked about', [2, 3], ordered(new Set(asked)));
  });
}

const SCENARIOS = { simple, push, tags, fifo, delay, transaction };

async function run(name) {
  const report = new Report(name);
  try {
    await SCENARIOS[name](report, `node-${name}`);
  } catch (error) {
    report.check('it did not fail', false, error.stack);
  }
  report.print({ kind: 'done' });
}

const over = Promise.all(wanted.map(run));
Promise.race([over, sleep(RUN_MS)]).then(() => process.exit(0));
