"""Logits of llama.cpp: run by a Python that has llama-cpp-python and numpy, and nothing of ours.

    python llama_logits.py FILE.gguf TEXT OUT.npz

OUT has `ids [T] int32` of the text and `logits [T, V] float32` after each of them.
"""

import sys

import llama_cpp
import numpy as np


def main() -> None:
    file, text, out = sys.argv[1:]
    model = llama_cpp.Llama(
        file,
        n_ctx=512,
        logits_all=True,
        # Keys and values as float32, without the rounding of its default, float16.
        type_k=llama_cpp.GGML_TYPE_F32,
        type_v=llama_cpp.GGML_TYPE_F32,
        flash_attn=False,
        n_threads=2,
        verbose=False,
    )
    ids = model.tokenize(text.encode(), add_bos=False)
    model.eval(ids)
    logits = np.array(model.scores[: len(ids)], np.float32)
    np.savez(out, ids=np.array(ids, np.int32), logits=logits)


main()
