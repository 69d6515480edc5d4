"""What each chat template writes for four conversations, put down by hand; what is trained stands in [[ ]].

None: the template refuses the conversation, or has no fixed place for its answers.
"""

# ruff: noqa: RUF001 - DeepSeek writes its control tokens so

from __future__ import annotations

from typing import NamedTuple

ONE = (("user", "Hi"), ("assistant", "Yes."))
TWO = (*ONE, ("user", "Why?"), ("assistant", "So it is."))
SYSTEM = ("system", "Be brief.")
CONVERSATIONS = (ONE, TWO, (SYSTEM, *ONE), (SYSTEM, *TWO))
_ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
)
_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions. "
)
_QWEN = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
_SMOLLM = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


class Row(NamedTuple):
    """One template.

    Attributes:
        one: A question and its answer.
        two: Two of them.
        system_one: ``one`` after a system turn.
        system_two: ``two`` after a system turn.
        bos: The tokenizer's BOS.
        eos: The tokenizer's EOS.
    """

    one: str | None
    two: str | None
    system_one: str | None
    system_two: str | None
    bos: str = "<s>"
    eos: str = "</s>"


TABLE = {
    "chatml": Row(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n[[So it is.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n[[So it is.<|im_end|>]]\n",
    ),
    "llama2": Row(
        "<s>[INST] Hi [/INST][[ Yes. </s>]]",
        "<s>[INST] Hi [/INST][[ Yes. </s>]]<s>[INST] Why? [/INST][[ So it is. </s>]]",
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST][[ Yes. </s>]]",
        "<s>[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi [/INST][[ Yes. </s>]]<s>[INST] Why? [/INST][[ So it is. </s>]]",
    ),
    "llama3": Row(
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[[Yes.<|eot_id|>]]",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[[Yes.<|eot_id|>]]"
        "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[[So it is.<|eot_id|>]]",
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[[Yes.<|eot_id|>]]",
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[[Yes.<|eot_id|>]]"
        "<|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n[[So it is.<|eot_id|>]]",
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
    ),
    "gemma": Row(
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[[Yes.<end_of_turn>]]\n",
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[[Yes.<end_of_turn>]]\n"
        "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n[[So it is.<end_of_turn>]]\n",
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n[[Yes.<end_of_turn>]]\n",
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n[[Yes.<end_of_turn>]]\n"
        "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n[[So it is.<end_of_turn>]]\n",
        bos="<bos>",
        eos="<eos>",
    ),
    "gemma2": Row(
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[[Yes.<end_of_turn>]]\n",
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n[[Yes.<end_of_turn>]]\n"
        "<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n[[So it is.<end_of_turn>]]\n",
        None,
        None,
        bos="<bos>",
        eos="<eos>",
    ),
    "mistral": Row(
        "<s>[INST] Hi [/INST][[ Yes.</s>]]",
        "<s>[INST] Hi [/INST][[ Yes.</s>]][INST] Why? [/INST][[ So it is.</s>]]",
        "<s>[INST] Be brief.\n\nHi [/INST][[ Yes.</s>]]",
        "<s>[INST] Be brief.\n\nHi [/INST][[ Yes.</s>]][INST] Why? [/INST][[ So it is.</s>]]",
    ),
    "mistral3": Row(
        "<s>[INST] Hi[/INST][[ Yes.</s>]]",
        "<s>[INST] Hi[/INST][[ Yes.</s>]][INST] Why?[/INST][[ So it is.</s>]]",
        "<s>[INST] Be brief.\n\nHi[/INST][[ Yes.</s>]]",
        None,
    ),
    "phi3": Row(
        "<|user|>\nHi<|end|>\n<|assistant|>\n[[Yes.<|end|>]]\n<|endoftext|>",
        "<|user|>\nHi<|end|>\n<|assistant|>\n[[Yes.<|end|>]]\n"
        "<|user|>\nWhy?<|end|>\n<|assistant|>\n[[So it is.<|end|>]]\n<|endoftext|>",
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n[[Yes.<|end|>]]\n<|endoftext|>",
        "<|system|>\nBe brief.<|end|>\n<|user|>\nHi<|end|>\n<|assistant|>\n[[Yes.<|end|>]]\n"
        "<|user|>\nWhy?<|end|>\n<|assistant|>\n[[So it is.<|end|>]]\n<|endoftext|>",
        eos="<|endoftext|>",
    ),
    "phi4": Row(
        "<|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant<|im_sep|>[[Yes.<|im_end|>]]",
        "<|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant<|im_sep|>[[Yes.<|im_end|>]]"
        "<|im_start|>user<|im_sep|>Why?<|im_end|><|im_start|>assistant<|im_sep|>[[So it is.<|im_end|>]]",
        "<|im_start|>system<|im_sep|>Be brief.<|im_end|>"
        "<|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant<|im_sep|>[[Yes.<|im_end|>]]",
        "<|im_start|>system<|im_sep|>Be brief.<|im_end|>"
        "<|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant<|im_sep|>[[Yes.<|im_end|>]]"
        "<|im_start|>user<|im_sep|>Why?<|im_end|><|im_start|>assistant<|im_sep|>[[So it is.<|im_end|>]]",
    ),
    "qwen25": Row(
        _QWEN + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n",
        _QWEN + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n[[So it is.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n[[So it is.<|im_end|>]]\n",
    ),
    "qwen3": Row(
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[<think>\n\n</think>\n\nYes.<|im_end|>]]\n",
        None,
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[<think>\n\n</think>\n\nYes.<|im_end|>]]\n",
        None,
    ),
    "tagged": Row(  # the thoughts of earlier answers are gone, and the tags say what is left of them
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[<think>\n\n</think>\n\nYes.<|im_end|>]]\n",
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
        "[[<think>\n\n</think>\n\nSo it is.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[<think>\n\n</think>\n\nYes.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
        "[[<think>\n\n</think>\n\nSo it is.<|im_end|>]]\n",
    ),
    "zephyr": Row(
        "<|user|>\nHi</s>\n<|assistant|>\n[[Yes.</s>]]\n",
        "<|user|>\nHi</s>\n<|assistant|>\n[[Yes.</s>]]\n<|user|>\nWhy?</s>\n<|assistant|>\n[[So it is.</s>]]\n",
        "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\n[[Yes.</s>]]\n",
        "<|system|>\nBe brief.</s>\n<|user|>\nHi</s>\n<|assistant|>\n[[Yes.</s>]]\n"
        "<|user|>\nWhy?</s>\n<|assistant|>\n[[So it is.</s>]]\n",
    ),
    "smollm2": Row(
        _SMOLLM + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n",
        _SMOLLM + "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n[[So it is.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n",
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n[[Yes.<|im_end|>]]\n"
        "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n[[So it is.<|im_end|>]]\n",
    ),
    "alpaca": Row(
        _ALPACA + "### Instruction:\nHi\n\n### Response:\n[[Yes.</s>]]\n\n",
        _ALPACA + "### Instruction:\nHi\n\n### Response:\n[[Yes.</s>]]\n\n"
        "### Instruction:\nWhy?\n\n### Response:\n[[So it is.</s>]]\n\n",
        "Be brief.\n\n### Instruction:\nHi\n\n### Response:\n[[Yes.</s>]]\n\n",
        "Be brief.\n\n### Instruction:\nHi\n\n### Response:\n[[Yes.</s>]]\n\n"
        "### Instruction:\nWhy?\n\n### Response:\n[[So it is.</s>]]\n\n",
    ),
    "vicuna": Row(
        _VICUNA + "USER: Hi ASSISTANT:[[ Yes.</s>]]",
        _VICUNA + "USER: Hi ASSISTANT:[[ Yes.</s>]]USER: Why? ASSISTANT:[[ So it is.</s>]]",
        "Be brief. USER: Hi ASSISTANT:[[ Yes.</s>]]",
        "Be brief. USER: Hi ASSISTANT:[[ Yes.</s>]]USER: Why? ASSISTANT:[[ So it is.</s>]]",
    ),
    "deepseek": Row(
        "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>[[Yes.<｜end▁of▁sentence｜>]]",
        "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>[[Yes.<｜end▁of▁sentence｜>]]"
        "<｜User｜>Why?<｜Assistant｜>[[So it is.<｜end▁of▁sentence｜>]]",
        "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜>[[Yes.<｜end▁of▁sentence｜>]]",
        "<｜begin▁of▁sentence｜>Be brief.<｜User｜>Hi<｜Assistant｜>[[Yes.<｜end▁of▁sentence｜>]]"
        "<｜User｜>Why?<｜Assistant｜>[[So it is.<｜end▁of▁sentence｜>]]",
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
    ),
    "glm4": Row(  # an answer ends where the next speaker begins
        "[gMASK]<sop><|user|>\nHi<|assistant|>[[\nYes.<|user|>]]",
        "[gMASK]<sop><|user|>\nHi<|assistant|>[[\nYes.<|user|>]]\nWhy?<|assistant|>[[\nSo it is.<|user|>]]",
        "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi<|assistant|>[[\nYes.<|user|>]]",
        "[gMASK]<sop><|system|>\nBe brief.<|user|>\nHi<|assistant|>[[\nYes.<|user|>]]\nWhy?"
        "<|assistant|>[[\nSo it is.<|user|>]]",
    ),
}
