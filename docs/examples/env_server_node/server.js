'use strict';

// An env server of CartPole and Addition: node server.js --learner HOST:PORT [--num-envs N]
// The contract that it follows are the comments of proto/seedrl/wire/seedrl.proto.

const os = require('os');
const { parseArgs } = require('util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { Addition } = require('./addition.js');
const { CartPole } = require('./cartpole.js');

const PROTO = require('path').join(__dirname, '../../../proto/seedrl/wire/seedrl.proto');
const ENVIRONMENTS = { 'CartPole-v1': CartPole, Addition };
// INVALID_ARGUMENT, PERMISSION_DENIED, FAILED_PRECONDITION, UNIMPLEMENTED, UNAUTHENTICATED
const NEVER = [3, 7, 9, 12, 16];
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
const stepSize = (size, { observationSize }) =>
  16 + padded(size) + 2 * padded(4 * size) + padded(4 * size * observationSize);

/** The environments of one stream, from Assign on. */
class Lease {
  constructor(assign, send) {
    this.key = assign.lease; // a string: doubles cannot hold 64 bits
    this.send = send;
    this.Environment = ENVIRONMENTS[assign.environment.id];
    const build = (seeds) => seeds.map((seed) => new this.Environment(Number(seed)));
    this.groups = assign.groups.map(({ seeds }) => ({ envs: build(seeds), steps: 0, answered: 0 }));
    send({ ready: { spec: this.Environment.spec } });
    this.groups.forEach((_, number) => this.sendStep(number));
  }

  /** Steps the groups whose actions are in one message. */
  act(message) {
    const { actionSize, isAction } = this.Environment;
    let start = 0;
    do {
      const number = message.readUInt32LE(start); // like all of these, throws where the end is
      const { envs = [], answered = 0 } = this.groups[number] ?? {};
      const isNext = message.readBigUInt64LE(start + 8) === BigInt(answered);
      const numActions = message.readUInt32LE(start + 4); // 0: a reset
      const isWhole = envs.length && [0, envs.length].includes(numActions);
      if (!isNext || !isWhole) fail('actions of no step');
      const size = padded(4 * numActions * actionSize);
      const numbers = [...Array(size / 4).keys()].map((i) => message.readInt32LE(start + 16 + 4 * i));
      const actions = envs.slice(0, numActions).map(() => numbers.splice(0, actionSize));
      const isPadded = numbers.every((rest) => rest === 0);
      if (!isPadded || !actions.every(isAction)) fail('actions that are none');
      envs.forEach((env, i) => (numActions ? env.step(actions[i]) : env.reset()));
      this.groups[number].answered += 1;
      start += 16 + size;
      this.sendStep(number);
    } while (start < message.length);
  }

  sendStep(number) {
    const group = this.groups[number];
    const size = group.envs.length; // 16 bytes of header, then each section in padded bytes
    const after = (arrays) => 16 + padded(size) + arrays * padded(4 * size);
    const [rewards, discounts, observations] = [after(0), after(1), after(2)];
    const step = Buffer.alloc(stepSize(size, this.Environment));
    [number, size].forEach((count, i) => step.writeUInt32LE(count, 4 * i));
    step.writeBigUInt64LE(BigInt(group.steps), 8);
    group.envs.forEach((env, i) => {
      step[16 + i] = env.stepType;
      step.writeFloatLE(env.reward, rewards + 4 * i);
      step.writeFloatLE(env.discount, discounts + 4 * i);
      env.write(step, observations + 4 * this.Environment.observationSize * i);
    });
    group.steps += 1;
    this.send({ step });
  }
}

function fail(text) {
  console.error(`env server: ${text}`);
  process.exit(2);
}

/** Why an Assign cannot be followed; '' if it can. */
function refusal({ environment, groups }) {
  const { id, arguments: given, wrappers } = environment;
  const Environment = ENVIRONMENTS[id];
  if (!Environment || !['', '{}'].includes(given) || wrappers.length) {
    return `only ${Object.keys(ENVIRONMENTS)} without arguments or wrappers`;
  }
  const fits = ({ slots, seeds }) => slots.length > 0 && slots.length === seeds.length;
  const [slots, seeds] = ['slots', 'seeds'].map((name) => groups.flatMap((each) => each[name]));
  const isOnce = groups.length && new Set(slots).size === slots.length;
  const isInRange = seeds.every((seed) => seed < 2 ** 31);
  if (!isOnce || !isInRange || !groups.every(fits)) return 'the Assign contradicts itself';
  return slots.length > options['num-envs'] ? 'more environments than offered' : '';
}

let [lease, attempts] = [null, 0];

/** One stream; `onEnd` is given its status, and whether Finish or a Refusal was said. */
function connect(Learner, onEnd) {
  const client = new Learner(options.learner, grpc.credentials.createInsecure(), CHANNEL);
  const call = client.Connect();
  let [isFinished, isAssigned, isRefused] = [false, false, false];
  const send = (message) => call.write(message);
  call.on('data', (message) => {
    if (message.actions && isAssigned) lease.act(message.actions);
    else if (message.finish) isFinished = true;
    else if (!message.assign || isAssigned) fail('the learner breaks the contract');
    else {
      const reason = refusal(message.assign);
      if ((isRefused = reason !== '')) return send({ refusal: { reason } });
      [lease, attempts, isAssigned] = [new Lease(message.assign, send), 0, true];
      console.error(`env server: connected, ${lease.groups.length} groups`);
    }
  });
  call.on('error', () => {}); // the status says it
  call.on('status', () => client.close());
  call.on('status', (end) => onEnd(end, isFinished, isRefused));
  const [host, numEnvs] = [os.hostname(), Number(options['num-envs'])];
  const sent = lease ? [{ lease: lease.key }] : [];
  send({ hello: { major: 3, minor: 5, numEnvs, numGroups: 2, host, pid: process.pid, sent } });
}

/** Streams, one after another, until training is over or the learner will never take this one. */
function serve(Learner) {
  connect(Learner, ({ code, details }, isFinished, isRefused) => {
    if (isFinished) process.exit(0);
    if (isRefused || NEVER.includes(code)) fail(`${grpc.status[code]}: ${details}`);
    const longest = code === grpc.status.RESOURCE_EXHAUSTED ? 5000 : 1000; // in ms
    const pause = Math.random() * Math.min(longest, 100 * 2 ** Math.min(attempts++, 10));
    setTimeout(serve, pause, Learner);
  });
}

['SIGTERM', 'SIGINT'].forEach((signal) => process.on(signal, () => process.exit(0)));
if (!options.learner) fail('expected --learner HOST:PORT');
const types = loader.loadSync(options.proto, { longs: String, defaults: true });
serve(grpc.loadPackageDefinition(types).seedrl.wire.Learner);
