"""Environments of the extras minatar, minigrid, popgym, reasoning, skyrl: where installed."""

import json
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seedrl.specs import FIRST_HELD_OUT_SEED


@pytest.fixture
def minatar() -> Any:
    pytest.importorskip("minatar")
    from envs_server.envs import minatar

    return minatar


def test_minatar_has_objects_of_255_in_bytes_and_all_six_actions(minatar: Any) -> None:
    env = minatar.breakout()
    image, _ = env.reset(seed=0)
    assert env.observation_space.contains(image) and image.shape == (10, 10, 4)
    assert image[9, 4, 0] == 255 and image[..., 0].sum() == 255  # the paddle
    assert (image[1:4, :, 3] == 255).all()  # the bricks
    assert env.action_space.n == 6
    assert minatar.breakout(minimal_actions=True).action_space.n == 3
    for game in (minatar.asterix, minatar.freeway, minatar.seaquest):
        assert game().observation_space.contains(game().reset(seed=0)[0])


def test_a_seed_decides_a_minatar_game_whatever_was_played_before(minatar: Any) -> None:
    def played(env: Any) -> list[bytes]:
        env.reset(seed=5)
        images = []
        for action in np.random.default_rng(0).integers(6, size=60):
            image, _, terminated, _, _ = env.step(action)
            images.append((env.reset()[0] if terminated else image).tobytes())
        return images

    env = minatar.space_invaders(sticky_actions=0.5)
    assert played(env) == played(env) == played(minatar.space_invaders(sticky_actions=0.5))


def test_a_missed_ball_terminates_and_a_long_episode_is_truncated(minatar: Any) -> None:
    def last(env: Any) -> tuple[int, bool, bool]:
        env.reset(seed=1)
        for step in range(1, 100):
            _, reward, terminated, truncated, _ = env.step(0)
            assert isinstance(reward, float)
            if terminated or truncated:
                return step, terminated, truncated
        raise AssertionError("the ball should have been missed")

    num_steps, *ends = last(minatar.breakout())
    assert ends == [True, False]
    assert last(minatar.breakout(max_steps=num_steps - 1)) == (num_steps - 1, False, True)


def test_a_view_of_minigrid_is_a_one_hot_image() -> None:
    pytest.importorskip("minigrid")
    from envs_server.envs.minigrid import make

    env = make()
    image, _ = env.reset(seed=3)
    assert env.observation_space.contains(image) and image.shape == (7, 7, 20)
    codes = env.unwrapped.gen_obs()["image"]
    for start, stop, kind in ((0, 11, 0), (11, 17, 1), (17, 20, 2)):
        np.testing.assert_array_equal(image[..., start:stop].argmax(-1), codes[..., kind])
        np.testing.assert_array_equal(image[..., start:stop].sum(-1), 255)
    env = make("Empty-5x5", max_steps=3)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(3)] == [False, False, True]


def test_naming_the_suit_of_three_cards_ago_earns_1_in_51_steps_of_popgym() -> None:
    pytest.importorskip("popgym")
    from envs_server.envs.popgym import make

    env = make()
    observation, _ = env.reset(seed=2)
    suits = deque([0, 0, 0, 0], maxlen=4)
    rewards, terminated = [], False
    while not terminated:
        assert env.observation_space.contains(observation) and observation.sum() == 1
        suits.append(int(observation.argmax()))
        observation, reward, terminated, truncated, _ = env.step(suits[0])
        assert not truncated
        rewards.append(reward)
    np.testing.assert_allclose(rewards, [0] * 3 + [1 / 48] * 48)
    # A Discrete inside of a tuple is one-hot, too.
    observation, _ = make("AutoencodeEasy").reset(seed=0)
    assert observation[:2].sum() == observation[2:].sum() == 1


def test_a_question_of_reasoning_gym_pays_what_its_dataset_scores() -> None:
    pytest.importorskip("reasoning_gym")
    from envs_server.envs.reasoning_gym import make

    def asked(env: Any, seed: int) -> str:
        text: str = env.tokens.decode(env.reset(seed))
        return text

    env = make(dataset="count_bits", template="Q: {question} A:", max_n=999)
    question = asked(env, 5)
    number = int(question.removesuffix("? A:").split(" ")[-1])
    assert question.startswith("Q: How many 1 bits") and 1 <= number <= 999
    assert env.tokens.decode(env.solution()) == str(number.bit_count())
    assert env.step(env.solution()) == (None, 1.0) and env.info == {"exact": 1.0}
    # Without an end, with more text, which the dataset gives a part of the point, and with none.
    end, more = env.tokens.end, env.tokens.encode(f"{number.bit_count()}!")
    for wrong, least in ((env.solution()[:-1], 0.0), (np.append(more, end), 0.4), ([], 0.0)):
        assert least <= env.step(np.array(wrong, np.int32))[1] < least + 0.3
        assert env.info == {"exact": 0.0}
    # The seed decides, and a question that is too long is left out.
    assert asked(make(dataset="count_bits", max_n=999), 5) in question
    assert len({asked(env, seed) for seed in range(30)}) > 20
    short = make(dataset="count_bits", max_n=999, longest_turn=len(question) - len("Q:  A:") - 1)
    assert all(len(short.reset(seed)) <= short.longest_turn for seed in range(30))


def test_an_answer_at_which_a_dataset_of_reasoning_gym_raises_is_wrong() -> None:
    """For it the environment was built again, and disabled after some of them."""
    pytest.importorskip("reasoning_gym")
    from envs_server.envs.reasoning_gym import make

    env = make(dataset="prime_factorization")
    env.reset(0)
    text = np.append(env.tokens.encode("two times two"), env.tokens.end)
    assert env.step(text) == (None, 0.0) and env.info == {"exact": 0.0}


def test_environments_of_reasoning_gym_share_a_tokenizer(tmp_path: Path) -> None:
    # A published one has megabytes: hundreds of them would take minutes and gigabytes.
    pytest.importorskip("reasoning_gym")
    pytest.importorskip("tokenizers")
    from envs_server.envs.reasoning_gym import make

    words = {character: number for number, character in enumerate("abc")}
    content = {"version": "1.0", "model": {"type": "BPE", "vocab": words, "merges": []}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tokenizer = str(tmp_path / "tokenizer.json")
    first, second = (make(dataset=each, tokenizer=tokenizer, end="c") for each in ("lcm", "gcd"))
    assert first.tokens is second.tokens


def test_what_reasoning_gym_does_not_know_is_refused_before_the_run() -> None:
    pytest.importorskip("reasoning_gym")
    from envs_server.envs.reasoning_gym import make

    for error, arguments, field in (
        (ValueError, {"dataset": "no_such"}, "no_such"),
        (TypeError, {"dataset": "count_bits", "no_such": 1}, "no_such"),
        (ValueError, {"dataset": "count_bits", "template": "Q:"}, "template"),
    ):
        with pytest.raises(error, match=field):
            make(**arguments)
    with pytest.raises(ValueError, match="longest_turn"):
        make(dataset="count_bits", longest_turn=3).reset(0)
    with pytest.raises(NotImplementedError, match="graph_color"):
        make(dataset="graph_color").solution()


@pytest.fixture
def skyrl() -> Any:
    pytest.importorskip("skyrl_gym")
    from envs_server.envs import skyrl_gym

    return skyrl_gym


def _ids(env: Any, text: str) -> np.ndarray:
    return np.append(env.tokens.encode(text), np.int32(env.tokens.end))


def _sums(skyrl: Any, **arguments: Any) -> Any:
    def question(seed: int) -> dict[str, Any]:
        one, other = np.random.default_rng(seed).integers(100, size=2).tolist()
        return {
            "prompt": [{"role": "user", "content": f"{one}+{other}=?"}],
            "reward_spec": {"ground_truth": str(one + other)},
            "max_turns": 3,
            "solution": f"#### {one + other}",
        }

    return skyrl.SkyRLGym("gsm8k_multi_turn", question, **arguments)


def test_a_dialogue_of_skyrl_gym_goes_on_until_its_environment_ends_it(skyrl: Any) -> None:
    env = _sums(skyrl, longest_turn=256)
    one, other = map(int, env.tokens.decode(env.reset(7)).removesuffix("=?").split("+"))
    right = env.tokens.decode(env.solution())
    assert right == f"#### {one + other}"
    # The environment pays a fifth of a point for three numbers in its format, and asks again.
    for text, paid in (("no number", 0.0), ("#### -1", 0.2 / 3)):
        turn, reward = env.step(_ids(env, text))
        assert reward == paid and "#### ANSWER" in env.tokens.decode(turn)
    assert env.step(env.solution()) == (None, 1.0)
    assert env.info == {"exact": 1.0, "steps": 3.0}
    env.reset(8)
    assert [env.step(_ids(env, "#### -1"))[0] is None for _ in range(3)] == [False, False, True]
    assert env.info == {"exact": 0.0, "steps": 3.0}
    # The seed decides.
    assert len({env.tokens.decode(env.reset(seed)) for seed in range(30)}) > 20
    np.testing.assert_array_equal(env.reset(7), _sums(skyrl, longest_turn=256).reset(7))


def test_roles_of_skyrl_gym_are_in_the_template_and_a_long_turn_loses_its_start(skyrl: Any) -> None:
    env = _sums(skyrl, template="<{role}>{content};", answer="<me>", longest_turn=40)
    question = env.tokens.decode(env.reset(0))
    assert question.startswith("<user>") and question.endswith("=?;<me>")
    turn, _ = env.step(_ids(env, ""))
    text = env.tokens.decode(turn)
    assert len(turn) == 40 and text.endswith("format: '#### ANSWER'.;<me>") and "<user>" not in text


def test_questions_of_a_file_for_skyrl_gym_are_held_out_or_trained(
    skyrl: Any, tmp_path: Path
) -> None:
    def row(number: int) -> dict[str, Any]:
        content = f"{number}?" + "!" * 30 * (number == 5)
        message = {"role": "user", "content": content}
        return {"prompt": [message], "reward_spec": {"ground_truth": str(number)}}

    data = tmp_path / "questions.jsonl"
    data.write_text("".join(json.dumps(row(number)) + "\n" for number in range(25)))
    env = skyrl.make(env="gsm8k", data=str(data), longest_turn=10)

    def asked(first: int) -> set[str]:
        return {env.tokens.decode(env.reset(first + seed)) for seed in range(60)}

    held_out = {"0?", "10?", "20?"}
    assert asked(FIRST_HELD_OUT_SEED) == held_out
    # The fifth is too long.
    assert asked(0) == {f"{number}?" for number in range(25) if number != 5} - held_out
    number = env.tokens.decode(env.reset(3)).removesuffix("?")
    assert env.step(_ids(env, f"#### {number}")) == (None, 1.0)
    with pytest.raises(NotImplementedError, match="solution"):
        env.solution()


def test_what_skyrl_gym_does_not_know_is_refused_before_the_run(skyrl: Any, tmp_path: Path) -> None:
    rows = {
        "short": ["{}"],
        "wrong": ["{}", "no JSON"],
        "prompt": ['{"reward_spec": {"ground_truth": "1"}}'] * 2,
        "answer": ['{"prompt": []}'] * 2,
    }
    for name, lines in rows.items():
        (tmp_path / name).write_text("\n".join(lines))
    for name, env, field in (
        ("short", "gsm8k", "at least 2"),
        ("wrong", "gsm8k", "line 2"),
        ("none", "gsm8k", "No such file"),
        ("prompt", "gsm8k", "prompt"),
        ("answer", "gsm8k", "reward_spec"),
        ("answer", "no_such", "no_such"),
    ):
        with pytest.raises(ValueError, match=field):
            skyrl.make(env=env, data=str(tmp_path / name))
    with pytest.raises(ValueError, match="template"):
        _sums(skyrl, template="Q:")
    with pytest.raises(ValueError, match="longest_turn"):
        _sums(skyrl, longest_turn=3).reset(0)
