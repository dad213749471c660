'use strict';

// Cart, pole and push of gymnasium's CartPole-v1, in SI units; the angle is in radians.
const [GRAVITY, PUSH, SECONDS] = [9.8, 10, 0.02];
const [POLE_MASS, TOTAL_MASS, HALF_LENGTH] = [0.1, 1.1, 0.5];
const LONGEST = 500; // steps
const [FIRST, MID, LAST] = [0, 1, 2];

/** Numbers from 0 to 1 that follow from `seed` (mulberry32). */
function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** One environment. Its row, after `reset` or `step`: stepType, reward, discount, `write`. */
class CartPole {
  static actionSize = 1; // numbers of 4 bytes
  static observationSize = 4;
  static spec = {
    action: { discrete: 2 },
    observation: { array: { shape: [4], dtype: 'float32' } },
  };

  static isAction([action]) {
    return action === 0 || action === 1;
  }

  constructor(seed) {
    this.random = random(seed);
    this.reset();
  }

  reset() {
    this.state = [0, 0, 0, 0].map(() => 0.1 * this.random() - 0.05);
    this.length = 0;
    [this.stepType, this.reward, this.discount] = [FIRST, 0, 1];
  }

  step([action]) {
    if (this.stepType === LAST) return this.reset(); // the action that answers LAST is ignored
    const [x, velocity, angle, spin] = this.state;
    const [sine, cosine] = [Math.sin(angle), Math.cos(angle)];
    const force = action === 1 ? PUSH : -PUSH;
    const push = (force + POLE_MASS * HALF_LENGTH * spin ** 2 * sine) / TOTAL_MASS;
    const inertia = HALF_LENGTH * (4 / 3 - (POLE_MASS * cosine ** 2) / TOTAL_MASS);
    const turn = (GRAVITY * sine - cosine * push) / inertia;
    const slide = push - (POLE_MASS * HALF_LENGTH * turn * cosine) / TOTAL_MASS;
    const change = [velocity, slide, spin, turn];
    this.state = this.state.map((number, i) => number + SECONDS * change[i]);
    this.length += 1;
    const hasFallen = Math.abs(this.state[0]) > 2.4 || Math.abs(this.state[2]) > Math.PI / 15;
    this.stepType = hasFallen || this.length === LONGEST ? LAST : MID;
    [this.reward, this.discount] = [1, hasFallen ? 0 : 1]; // at the time limit alone: truncated
  }

  /** Writes the observation. */
  write(step, start) {
    this.state.forEach((x, i) => step.writeFloatLE(x, start + 4 * i));
  }
}

module.exports = { CartPole, random };
