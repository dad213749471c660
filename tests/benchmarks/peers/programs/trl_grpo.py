"""TRL's GRPOTrainer on words to be reversed, with rounds of evaluation that are not counted.

One command (`trl.py`, one folder up, says what is in it) is answered with
`{"logits": [...], "lines": [...]}`: logits `[B, T, V]` of the weights at the start for the held-out
questions, and a line for each round of evaluation, with the counts of training before it.
"""

import tempfile
import time
from typing import Any

import torch
from answering import commands
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import (
    GenerationConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    TrainerCallback,
)
from trl import GRPOConfig, GRPOTrainer

_END = "<end>"
Task = dict[str, Any]


def make_tokenizer(alphabet: str) -> PreTrainedTokenizerFast:
    """An id for each character, and then the end, which also pads."""
    ids = {word: number for number, word in enumerate([*alphabet, _END])}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(ids, merges=[])), eos_token=_END, pad_token=_END
    )


class Rounds(TrainerCallback):
    """Plays held-out questions before training and after every `round_updates` updates.

    Attributes:
      questions: ids of the held-out questions, `[B, T]`.
      lines: result of each round.
      tokens, completions: sampled in training so far.
    """

    def __init__(self, task: Task, tokenizer: PreTrainedTokenizerFast):
        self._task, self._end = task, tokenizer.eos_token_id
        self.questions = tokenizer(task["held_out"], return_tensors="pt")["input_ids"]
        self._excluded_seconds = 0.0
        self.lines: list[dict[str, float]] = []
        self.tokens = self.completions = 0

    def reward(self, prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        """1 for a word from its end, and then the end."""
        self.completions += len(prompts)
        self.tokens += sum(map(len, completion_ids))
        return self._scores(prompts, completion_ids)

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.on_step_end(args, state, control, **others)

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **_: Any) -> None:
        if state.global_step % self._task["round_updates"]:
            return
        start = time.time()
        model.eval()
        with torch.no_grad():
            ids = model.generate(
                self.questions,
                attention_mask=torch.ones_like(self.questions),
                generation_config=GenerationConfig(
                    max_new_tokens=self._task["longest_completion"],
                    do_sample=False,
                    eos_token_id=self._end,
                    pad_token_id=self._end,
                ),
            )
        model.train()
        scores = self._scores(self._task["held_out"], ids[:, self.questions.shape[1] :].tolist())
        line = {
            "elapsed_seconds": start - self._task["started"] - self._excluded_seconds,
            "completions": self.completions,
            "tokens": self.tokens,
            "score": sum(scores) / len(scores),
        }
        self.lines.append(line)
        control.should_training_stop = line["score"] >= self._task["target"]
        self._excluded_seconds += time.time() - start

    def _scores(self, questions: list[str], completions: list[list[int]]) -> list[float]:
        alphabet = self._task["alphabet"]
        scores = []
        for question, ids in zip(questions, completions, strict=True):
            # The question is a word and `=`.
            right = [*map(alphabet.index, question[-2::-1]), self._end]
            # After the end there is padding; what is cut has none.
            scores.append(float(ids[: len(right)] == right))
        return scores


def main() -> None:
    for task, answer in commands():
        torch.set_num_threads(task["threads"])
        tokenizer = make_tokenizer(task["alphabet"])
        model = LlamaForCausalLM.from_pretrained(task["weights"], dtype=torch.float32)
        # By default the id 2, which is a letter here.
        model.generation_config.eos_token_id = tokenizer.eos_token_id
        rounds = Rounds(task, tokenizer)
        with torch.no_grad():
            logits = model(rounds.questions).logits.tolist()
        with tempfile.TemporaryDirectory() as folder:
            trainer = GRPOTrainer(
                model,
                rounds.reward,
                args=GRPOConfig(output_dir=folder, **task["settings"]),
                train_dataset=Dataset.from_dict({"prompt": task["questions"]}),
                processing_class=tokenizer,
                callbacks=[rounds],
            )
            trainer.train()
        answer(logits=logits, lines=rounds.lines)


if __name__ == "__main__":
    main()
