'use strict';

// An env server of CartPole: node server.js --learner HOST:PORT [--num-envs N]
// The contract that it follows are the comments of proto/seedrl/wire/seedrl.proto.

const os = require('os');
const path = require('path');
const { parseArgs } = require('util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { CartPole } = require('./cartpole.js');

const PROTO = path.join(__dirname, '..', '..', '..', 'proto', 'seedrl', 'wire', 'seedrl.proto');
const SPEC = { action: { discrete: 2 }, observation: { array: { shape: [4], dtype: 'float32' } } };
const { INVALID_ARGUMENT, FAILED_PRECONDITION, RESOURCE_EXHAUSTED } = grpc.status;
const { UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED } = grpc.status;
const NEVER = [INVALID_ARGUMENT, FAILED_PRECONDITION];
NEVER.push(UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED);
const CHANNEL = {
  'grpc.keepalive_time_ms': 2000,
  'grpc.keepalive_timeout_ms': 20000,
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
};

const string = (value) => ({ type: 'string', default: value });
const { values: options } = parseArgs({
  options: { learner: string(''), 'num-envs': string('16'), proto: string(PROTO) },
});

const padded = (size) => size + (-size & 7);

/** The environments of one stream, from Assign on. */
class Lease {
  constructor(assign, send) {
    this.key = assign.lease; // a string: doubles cannot hold 64 bits
    this.send = send;
    this.longest = Number(assign.maxMessageBytes) || Infinity;
    this.groups = assign.groups.map(({ seeds }) => ({
      envs: seeds.map((seed) => new CartPole(Number(seed))),
      steps: 0,
      answered: 0,
    }));
  }

  start() {
    this.send({ ready: { spec: JSON.stringify(SPEC) } });
    this.groups.forEach((_, number) => this.sendStep(number));
  }

  /** Steps the groups whose actions are in one message. */
  act(message) {
    for (let start = 0; start < message.length; ) {
      const number = message.readUInt32LE(start);
      const group = this.groups[number];
      group.envs.forEach((env, i) => env.step(message.readInt32LE(start + 16 + 4 * i)));
      group.answered += 1;
      start += 16 + padded(4 * group.envs.length);
      this.sendStep(number);
    }
  }

  sendStep(number) {
    const group = this.groups[number];
    const size = group.envs.length; // 16 bytes of header, then each section in padded bytes
    const rewards = 16 + padded(size);
    const discounts = rewards + padded(4 * size);
    const observations = discounts + padded(4 * size);
    const step = Buffer.alloc(observations + 16 * size);
    step.writeUInt32LE(number, 0);
    step.writeUInt32LE(size, 4);
    step.writeBigUInt64LE(BigInt(group.steps), 8);
    group.envs.forEach((env, i) => {
      step[16 + i] = env.stepType;
      step.writeFloatLE(env.reward, rewards + 4 * i);
      step.writeFloatLE(env.discount, discounts + 4 * i);
      env.state.forEach((x, j) => step.writeFloatLE(x, observations + 16 * i + 4 * j));
    });
    if (step.length + 6 > this.longest) fail(`a step of ${size} environments is too long`);
    group.steps += 1; // counted before it is given to the transport
    this.send({ step });
  }

  report() {
    return this.groups.map(({ envs, steps, answered }, group) => {
      return { lease: this.key, group, numEnvs: envs.length, steps, answered };
    });
  }
}

function fail(text) {
  console.error(`env server: ${text}`);
  process.exit(2);
}

/** Why an Assign cannot be followed; '' if it can. */
function refusal({ environments }) {
  const known = (each) => each.id === 'CartPole-v1' && ['', '{}'].includes(each.arguments);
  const other = environments.find((each) => !known(each) || each.wrappers.length > 0);
  return other ? `only CartPole-v1 without arguments and wrappers, not ${other.id}` : '';
}

let lease = null;
let attempts = 0;

/** One stream; `onEnd` is given its status, and whether Finish was said. */
function connect(Learner, onEnd) {
  const client = new Learner(options.learner, grpc.credentials.createInsecure(), CHANNEL);
  const call = client.Connect();
  let isFinished = false;
  const send = (message) => call.write(message);
  call.on('data', (message) => {
    if (message.actions) lease.act(message.actions);
    else if (message.finish) isFinished = true;
    else if (message.assign) {
      const reason = refusal(message.assign);
      if (reason) return send({ refusal: { reason } });
      lease = new Lease(message.assign, send);
      lease.start();
      attempts = 0;
      console.error(`env server: connected, ${lease.groups.length} groups`);
    }
  });
  call.on('error', () => {}); // the status says it
  call.on('status', (end) => {
    client.close();
    onEnd(end, isFinished);
  });
  const sent = lease ? lease.report() : [];
  const host = os.hostname();
  const numEnvs = Number(options['num-envs']);
  send({ hello: { major: 2, minor: 1, numEnvs, numGroups: 2, host, pid: process.pid, sent } });
}

/** Streams, one after another, until training is over or the learner will never take this one. */
function serve(Learner) {
  connect(Learner, ({ code, details }, isFinished) => {
    if (isFinished) process.exit(0);
    if (NEVER.includes(code)) fail(`${grpc.status[code]}: ${details}`);
    const longest = code === RESOURCE_EXHAUSTED ? 5000 : 1000; // in ms
    const pause = Math.random() * Math.min(longest, 100 * 2 ** Math.min(attempts, 10));
    attempts += 1;
    setTimeout(serve, pause, Learner);
  });
}

if (!options.learner) fail('expected --learner HOST:PORT');
const types = loader.loadSync(options.proto, { longs: String, defaults: true });
serve(grpc.loadPackageDefinition(types).seedrl.wire.Learner);
