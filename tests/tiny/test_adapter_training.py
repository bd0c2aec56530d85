"""The adapter's training: the samples' citations and evidence, the questions, and that training lowers the loss."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specrace.core.errors import InputError
from specrace.model.weights.adapter import merge, read_adapter
from specrace.retrieval.prompt import GROUNDED, NO_EVIDENCE, build_prompt
from specrace.retrieval.sentences import split_sentences
from specrace.tiny.__main__ import main
from specrace.tiny.adapter_data import GroundedSample, GroundedTask, cite
from specrace.tiny.adapter_questions import questions
from specrace.tiny.adapter_train import AdapterRecipe, Tree, attach, encode, losses, update
from specrace.tiny.quoting import Source

ANIMALS = ("otter", "heron", "badger", "lynx", "falcon", "beaver", "raven", "marten", "viper", "tortoise", "bison")
PLACES = ("river", "marsh", "forest", "mountain", "cliff", "lake", "tower", "cave", "stream", "desert", "steppe")


def _sources() -> list[Source]:
    """Prose about 66 pairs of animal and place, and a fact for each animal."""
    return [
        Source(
            f"The {animal} of the {place}",
            (
                f"The {animal} is a patient hunter of the {place} and its borders.",
                "It rests for most of the day under the old trees.",
                f"Most {animal}s build winter shelters from {place} grass and mud.",
                f"In 1{number + 10}4, the {animal} was counted in the {place} by two sisters.",
                f"Young {animal}s can cross the {place} after a month.",
            ),
        )
        for number, (animal, place) in enumerate(product(ANIMALS, PLACES[:6]))
    ] + [
        Source(f"Norland: Number of {animal}s", (f"{number} thousand (2020 est.)",))
        for number, animal in enumerate(ANIMALS)
    ]


def _samples(count: int) -> list[GroundedSample]:
    """The first samples of the task, at most 60, always the same ones."""
    return _all_samples()[:count]


@cache
def _all_samples() -> list[GroundedSample]:
    task = GroundedTask(_sources(), 0)
    return [task.sample(6) for _ in range(60)]


def test_cited_sentences_are_in_the_cited_passage() -> None:
    num_prose = num_facts = 0
    for sample in _samples(60):
        for question in sample.questions:
            if question.answer == NO_EVIDENCE:
                continue
            assert re.search(r"\[\d\]\.$", question.answer)
            for body, number in re.findall(r"(.+?) \[(\d)\]\.(?: |$)", question.answer):
                source, text = sample.passages[int(number) - 1], sample.texts[int(number) - 1]
                if ": " in source.title:
                    num_facts += 1
                    assert source.sentences[0] in body
                else:
                    num_prose += 1
                    assert body.casefold() in text.casefold()
    assert num_prose > 100
    assert num_facts > 5


def test_the_answering_sentence_is_evidence_and_mostly_the_best() -> None:
    num_best = num_answered = 0
    for sample in _samples(60):
        for question in sample.questions:
            marked = [sample.passages[number].sentences[index] for number, index in question.evidence]
            assert len(marked) == len(set(question.evidence)) <= 3
            assert marked or question.answer == NO_EVIDENCE
            if question.answer != NO_EVIDENCE:
                ranks = [rank for rank, text in enumerate(marked, 1) if text.rstrip(".") in question.answer]
                assert ranks
                num_answered += 1
                num_best += ranks[0] == 1
    assert 0.6 < num_best / num_answered < 0.95


def test_the_prompt_has_the_passages_and_quotes_the_best_evidence(tokenizer: Any) -> None:
    sample = next(sample for sample in _samples(20) if sample.questions[0].evidence and len(sample.passages) == 2)
    question = sample.questions[0]
    text = build_prompt(tokenizer, question.question, sample.hits(question), GROUNDED).text
    number, index = question.evidence[0]
    quoted = f"Most relevant sentences:\n[{number + 1}] {sample.passages[number].sentences[index]}"
    assert f"[2] {sample.passages[1].title}\n{sample.texts[1]}\n\n{quoted}" in text
    # Only the best sentence of evidence is quoted.
    assert f"{quoted}\n\nQuestion: {question.question}" in text


def test_the_prompt_says_that_there_is_no_evidence(tokenizer: Any) -> None:
    sample = _samples(1)[0]
    question = replace(sample.questions[0], evidence=())
    text = build_prompt(tokenizer, question.question, sample.hits(question), GROUNDED).text
    assert f"Question: {question.question}\n\nMost relevant sentences:\n{NO_EVIDENCE}" in text
    assert text.count(NO_EVIDENCE) == 1


def test_answers_have_up_to_three_sentences_and_some_say_that_there_is_no_evidence() -> None:
    answers = [question.answer for sample in _samples(60) for question in sample.questions]
    lengths = {len(list(split_sentences(answer))) for answer in answers}
    assert lengths == {1, 2, 3}
    assert 0.05 < answers.count(NO_EVIDENCE) / len(answers) < 0.25


def test_no_answer_repeats_its_question_or_begins_with_the_word_it() -> None:
    for sample in _samples(60):
        for question in sample.questions:
            assert question.question[:-1].casefold() not in question.answer.casefold()
            assert not question.answer.startswith("It ")


@pytest.mark.parametrize(
    ("sentence", "question"),
    [
        ("The fennec fox is the smallest fox in the world.", "What is the fennec fox?"),
        ("Slavery was abolished in 1834.", "When was Slavery abolished?"),
        ("Signed numbers are stored using two's complement.", "What are signed numbers stored using?"),
        ("The bridge was closed because the river rose.", "Why was the bridge closed?"),
        ("Honey is sticky, and bees are fond of the waggle dance.", "What about the waggle dance?"),
        ("The human heart has four chambers.", "How many chambers does the human heart have?"),
        ("It rests by day.", ""),
        ("While this is rare, it is dangerous.", ""),
    ],
)
def test_questions_are_made_from_sentences_with_a_clear_subject(sentence: str, question: str) -> None:
    """`question` is one of the questions made from the sentence; "" if none can be made."""
    variants = {variant for seed in range(200) for variant in questions(sentence, random.Random(seed))}
    if question:
        assert question in variants
    else:
        assert not variants


def test_a_citation_is_put_before_the_final_punctuation_mark() -> None:
    assert cite("Is it so?", 1) == "Is it so [1]?"
    assert cite("about 2.5 km", 2) == "about 2.5 km [2]."


TEMPLATE = (
    "{% for message in messages %}<s> {{ message['content'] }} </s>{% endfor %}"
    "{% if add_generation_prompt %} <a> {% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """A tokenizer whose tokens are the words of the samples."""
    words = {
        word
        for sample in _samples(40)
        for question in sample.questions
        for word in re.findall(r"\w+|[^\w\s]", f"{sample.texts} {question.question} {question.answer}")
    }
    vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", "<a>", "?", *sorted(words - {"?"})])}
    plain = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.add_special_tokens(["<s>", "</s>", "<a>"])
    return PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="</s>", pad_token="</s>", chat_template=TEMPLATE)


def _model(tokenizer: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "initializer_range": 0.1,
    }
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).eval()


def test_questions_that_share_a_forward_do_not_attend_to_each_other(tokenizer: Any) -> None:
    model, sample = _model(tokenizer), _samples(1)[0]
    joint_losses = losses(model, encode(sample, tokenizer))
    single_questions = [replace(sample, questions=(question,)) for question in sample.questions]
    separate_losses = [losses(model, encode(single, tokenizer)) for single in single_questions]
    assert len(separate_losses) > 2
    torch.testing.assert_close(joint_losses, torch.cat(separate_losses))


def test_a_few_updates_lower_the_loss(tokenizer: Any) -> None:
    model, trees = _model(tokenizer), [encode(sample, tokenizer) for sample in _samples(4)]
    matrices = attach(model, AdapterRecipe())
    optimizer = torch.optim.AdamW(matrices.values())
    before = _loss(model, trees)
    for _ in range(8):
        update(model, matrices, optimizer, trees, 0.03)
    assert _loss(model, trees) < before - 0.2


def test_a_saved_adapter_has_the_trained_matrices_and_training_resumes(tokenizer: Any, tmp_path: Path) -> None:
    base, out = tmp_path / "base", tmp_path / "adapter"
    _model(tokenizer).save_pretrained(base)
    tokenizer.save_pretrained(base)
    text = tmp_path / "text.jsonl"
    rows = [{"title": source.title, "text": " ".join(source.sentences)} for source in _sources()]
    text.write_text("\n".join(map(json.dumps, rows)))
    command = ["adapter", "--base", str(base), "--text", str(text), "--out", str(out), "--minutes"]
    # The first run has time for one step. The second resumes after it, and has no time left.
    assert main([*command, "1e-9"]) == main([*command, "1e-9"]) == 0
    assert [json.loads(line)["step"] for line in (out / "losses.jsonl").read_text().splitlines()] == [1]
    state = torch.load(out / "checkpoint.pt", weights_only=True)
    adapter = read_adapter(out)
    for module, matrices in adapter.matrices.items():
        for letter, exported in zip("AB", matrices, strict=True):
            trained = state["matrices"][f"base_model.model.{module}.lora_{letter}.weight"]
            assert torch.equal(exported, trained.to(torch.bfloat16).float())
    merge(_model(tokenizer), adapter, "the model")


@torch.inference_mode()
def _loss(model: LlamaForCausalLM, trees: list[Tree]) -> float:
    return float(torch.cat([losses(model, tree) for tree in trees]).mean())


def test_a_new_adapter_changes_no_output_and_training_changes_only_the_adapter(tokenizer: Any) -> None:
    model, tree = _model(tokenizer), encode(_samples(1)[0], tokenizer)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    expected = losses(model, tree)
    matrices = attach(model, AdapterRecipe())
    torch.testing.assert_close(losses(model, tree), expected)
    update(model, matrices, torch.optim.AdamW(matrices.values()), [tree], 0.01)
    # `attach` moved a layer `x` to `x.layer`.
    after = {name.replace(".layer.", "."): tensor for name, tensor in model.state_dict().items() if "lora" not in name}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert any(tensor.abs().sum() > 0 for name, tensor in matrices.items() if "lora_B" in name)


def test_text_without_three_plain_sentences_in_a_passage_is_refused() -> None:
    with pytest.raises(InputError, match="none with three plain sentences"):
        GroundedTask([Source("Codes", ("a = 1", "b = 2", "c = 3"))], 0)
