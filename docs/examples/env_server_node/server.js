'use strict';

// An env server of CartPole: node server.js --learner HOST:PORT [--num-envs N]
// The contract that it follows are the comments of proto/seedrl/wire/seedrl.proto.

const os = require('os');
const { parseArgs } = require('util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { CartPole } = require('./cartpole.js');

const PROTO = require('path').join(__dirname, '../../../proto/seedrl/wire/seedrl.proto');
const SPEC = { action: { discrete: 2 }, observation: { array: { shape: [4], dtype: 'float32' } } };
const NEVER = ['INVALID_ARGUMENT', 'FAILED_PRECONDITION', 'UNAUTHENTICATED'];
NEVER.push('PERMISSION_DENIED', 'UNIMPLEMENTED');
const CHANNEL = {
  'grpc.keepalive_time_ms': 2000,
  'grpc.use_local_subchannel_pool': 1, // else gRPC's own back-off delays the next stream
  'grpc.max_receive_message_length': -1,
  'grpc.enable_http_proxy': 0,
};

const string = (value) => ({ type: 'string', default: value });
const { values: options } = parseArgs({
  options: { learner: string(''), 'num-envs': string('16'), proto: string(PROTO) },
});

const padded = (size) => size + (-size & 7);
const stepSize = (size) => 16 + padded(size) + 2 * padded(4 * size) + 16 * size;

/** The environments of one stream, from Assign on. */
class Lease {
  constructor(assign, send) {
    this.key = assign.lease; // a string: doubles cannot hold 64 bits
    this.send = send;
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
      if (message.readBigUInt64LE(start + 8) !== BigInt(group.answered)) fail('actions of no step');
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
    const step = Buffer.alloc(stepSize(size));
    step.writeUInt32LE(number, 0);
    step.writeUInt32LE(size, 4);
    step.writeBigUInt64LE(BigInt(group.steps), 8);
    group.envs.forEach((env, i) => {
      step[16 + i] = env.stepType;
      step.writeFloatLE(env.reward, rewards + 4 * i);
      step.writeFloatLE(env.discount, discounts + 4 * i);
      env.state.forEach((x, j) => step.writeFloatLE(x, observations + 16 * i + 4 * j));
    });
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
function refusal({ environments, groups, maxMessageBytes }) {
  const known = ({ id, arguments: given, wrappers }) =>
    id === 'CartPole-v1' && ['', '{}'].includes(given) && !wrappers.length;
  if (!environments.every(known)) return 'only CartPole-v1 without arguments or wrappers';
  const fits = ({ slots, seeds, environment }) =>
    slots.length > 0 && slots.length === seeds.length && environment < environments.length;
  if (!groups.length || !groups.every(fits)) return 'the Assign contradicts itself';
  const sizes = groups.map(({ slots }) => slots.length);
  if (sizes.reduce((a, b) => a + b) > options['num-envs']) return 'more environments than offered';
  const longest = stepSize(Math.max(...sizes)) + 6;
  return longest > (+maxMessageBytes || Infinity) ? `a step of ${longest} bytes is too long` : '';
}

let [lease, attempts] = [null, 0];

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
      [lease, attempts] = [new Lease(message.assign, send), 0];
      lease.start();
      console.error(`env server: connected, ${lease.groups.length} groups`);
    }
  });
  call.on('error', () => {}); // the status says it
  call.on('status', (end) => {
    client.close();
    onEnd(end, isFinished);
  });
  const [host, numEnvs, sent] = [os.hostname(), Number(options['num-envs']), lease?.report() ?? []];
  send({ hello: { major: 2, minor: 1, numEnvs, numGroups: 2, host, pid: process.pid, sent } });
}

/** Streams, one after another, until training is over or the learner will never take this one. */
function serve(Learner) {
  connect(Learner, ({ code, details }, isFinished) => {
    if (isFinished) process.exit(0);
    if (NEVER.includes(grpc.status[code])) fail(`${grpc.status[code]}: ${details}`);
    const longest = code === grpc.status.RESOURCE_EXHAUSTED ? 5000 : 1000; // in ms
    const pause = Math.random() * Math.min(longest, 100 * 2 ** Math.min(attempts, 10));
    attempts += 1;
    setTimeout(serve, pause, Learner);
  });
}

if (!options.learner) fail('expected --learner HOST:PORT');
const types = loader.loadSync(options.proto, { longs: String, defaults: true });
serve(grpc.loadPackageDefinition(types).seedrl.wire.Learner);
