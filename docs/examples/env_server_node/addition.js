'use strict';

// An environment of token ids: `57+8=` is answered by `65` and the end.
const { random } = require('./cartpole.js');

const ALPHABET = '0123456789+=';
const END = ALPHABET.length; // the id that ends a completion
const [LONGEST_TURN, LONGEST_COMPLETION] = [6, 5];
const HIGH = 2 ** 31 - 2; // the largest seed, plus 1
const [FIRST, MID, LAST, NEXT] = [0, 1, 2, 3];

/** One environment; its row and its methods are those of CartPole. */
class Addition {
  static actionSize = 2 + LONGEST_COMPLETION;
  static observationSize = 2 + LONGEST_TURN;
  static spec = {
    action: {
      tokens: {
        vocabulary: END + 1,
        longestTurn: LONGEST_TURN,
        longestCompletion: LONGEST_COMPLETION,
        end: END,
        alphabet: ALPHABET,
      },
    },
    observation: { array: { shape: [2 + LONGEST_TURN], dtype: 'int32', low: [0], high: [HIGH] } },
  };

  static isAction([seed, size, ...ids]) {
    const isToken = (id, i) => (i < size ? id >= 0 && id <= END : id === 0);
    return seed >= 0 && size >= 0 && size <= LONGEST_COMPLETION && ids.every(isToken);
  }

  constructor(seed) {
    this.random = random(seed);
    this.reset();
  }

  reset(seedPlusOne = 0) {
    this.ask(seedPlusOne ? seedPlusOne - 1 : Math.floor(this.random() * 2 ** 31), seedPlusOne);
    this.stepType = FIRST;
  }

  /** The question of a seed. The learner asks several environments the same one. */
  ask(seed, seedPlusOne) {
    this.seedPlusOne = seedPlusOne;
    const draw = random(seed);
    const [one, other] = [0, 0].map(() => Math.floor(draw() * 100));
    this.turn = [...`${one}+${other}=`].map((each) => ALPHABET.indexOf(each));
    this.answer = [...`${one + other}`].map((each) => ALPHABET.indexOf(each)).concat(END);
    [this.stepType, this.reward, this.discount] = [MID, 0, 1];
  }

  step([seed, size, ...ids]) {
    if (this.stepType === LAST) return this.reset(seed);
    if (seed && !size) return this.ask(seed - 1, seed);
    const isRight = size === this.answer.length && this.answer.every((id, i) => id === ids[i]);
    [this.turn, this.seedPlusOne] = [[], 0]; // one question is an episode
    [this.stepType, this.reward, this.discount] = [LAST, Number(isRight), 0];
    if (!seed) return;
    this.ask(seed - 1, seed); // named by the answer: no FIRST row comes between
    [this.stepType, this.reward] = [NEXT, Number(isRight)];
  }

  /** Writes the turn: its seed plus 1, the number of ids, the ids; what follows is 0. */
  write(step, start) {
    const row = [this.seedPlusOne, this.turn.length, ...this.turn];
    row.forEach((x, i) => step.writeInt32LE(x, start + 4 * i));
  }
}

module.exports = { Addition };
