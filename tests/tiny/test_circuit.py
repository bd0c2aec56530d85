"""The copying circuit, before any training: it must copy by construction."""

from __future__ import annotations

import random

import pytest
import torch

from specrace.tiny.circuit import Heads, Markers, build_model, tiny_config

VOCABULARY = 1024
HEADS = Heads.of(512)
CONTEXT, EVIDENCE, QUESTION, ANSWER, CLOSE = 1, (2, 3, 4), 5, 6, 8
MARKERS = Markers(EVIDENCE, QUESTION, ANSWER, (CONTEXT, CLOSE))


@pytest.fixture(scope="module")
def model():
    config = tiny_config(VOCABULARY, eos_token_id=7)
    config._attn_implementation = "eager"
    return build_model(config, MARKERS).eval()


def marked_text(seed: int) -> tuple[list[int], list[int]]:
    """A context of twelve sentences, three of them marked, a question that repeats half of one, and the answer."""
    chance = random.Random(seed)
    sentences = [[chance.randrange(20, VOCABULARY) for _ in range(25)] for _ in range(12)]
    marked = chance.sample(range(12), 3)
    ids = [CONTEXT]
    for number, sentence in enumerate(sentences):
        ids += [EVIDENCE[marked.index(number)], *sentence, CLOSE] if number in marked else sentence
    ids += [QUESTION, *sentences[marked[1]][6:18], ANSWER, 9, 10, 11, EVIDENCE[1]]
    return ids, sentences[marked[1]]


@torch.inference_mode()
def test_marked_sentence_is_copied_even_when_the_question_repeats_it(model) -> None:
    right = total = 0
    for seed in range(6):
        ids, sentence = marked_text(seed)
        predicted = model(torch.tensor([ids + sentence])).logits[0, len(ids) - 1 : -1].argmax(-1).tolist()
        right += sum(a == b for a, b in zip(predicted, sentence, strict=True))
        total += len(sentence)
    assert right / total > 0.97


@torch.inference_mode()
def test_fetching_heads_look_where_they_should(model) -> None:
    ids, _ = marked_text(0)
    attention = model(torch.tensor([ids]), output_attentions=True).attentions[0][0]
    for head in range(HEADS.num_back):
        back = torch.stack([attention[head, p, p - head - 1] for p in range(HEADS.num_back, len(ids))])
        assert back.min() > 0.99
    stretch = torch.stack([attention[HEADS.stretch, p, p - 20 : p - 3].sum() for p in range(20, len(ids))])
    assert stretch.min() > 0.9


@torch.inference_mode()
def test_latest_marker_is_known_deep_inside_a_long_sentence(model) -> None:
    chance = random.Random(1)
    ids: list[int] = []
    for marker, length in (
        (CONTEXT, 9),
        (EVIDENCE[0], 150),
        (EVIDENCE[1], 9),
        (EVIDENCE[2], 155),
        (CLOSE, 30),
        (QUESTION, 12),
    ):
        ids += [marker, *(chance.randrange(20, VOCABULARY) for _ in range(length))]
    attention = model(torch.tensor([ids]), output_attentions=True).attentions[0][0, HEADS.latest]
    latest = [max(i for i in range(p + 1) if ids[i] in MARKERS.ids) for p in range(len(ids))]
    assert torch.stack([attention[p, latest[p]] for p in range(len(ids))]).min() > 0.9


@torch.inference_mode()
def test_long_marked_sentence_is_copied_to_its_end_beside_one_that_shares_its_words(model) -> None:
    """The other sentence has every ten words of the marked one, in another order."""
    right = total = 0
    for seed in range(4):
        chance = random.Random(seed)
        pieces = [[chance.randrange(20, VOCABULARY) for _ in range(10)] for _ in range(14)]
        sentence = [token for piece in pieces for token in piece]
        shuffled = [token for piece in chance.sample(pieces, len(pieces)) for token in piece]
        ids = [
            CONTEXT,
            *shuffled,
            EVIDENCE[0],
            *shuffled[::-1],
            CLOSE,
            EVIDENCE[1],
            *sentence,
            CLOSE,
            EVIDENCE[2],
            *shuffled,
        ]
        ids += [CLOSE, QUESTION, 12, ANSWER, 9, EVIDENCE[1], *sentence]
        predicted = model(torch.tensor([ids])).logits[0, -len(sentence) - 1 : -1].argmax(-1).tolist()
        right += sum(a == b for a, b in zip(predicted, sentence, strict=True))
        total += len(sentence)
    assert right / total > 0.99


@torch.inference_mode()
def test_answer_sees_the_first_two_words_of_the_question(model) -> None:
    ids, sentence = marked_text(0)
    ids += sentence
    attention = model(torch.tensor([ids]), output_attentions=True).attentions[2][0]
    for head in range(2):
        assert attention[head, ids.index(ANSWER) :, ids.index(QUESTION) + 1 + head].min() > 0.99


@torch.inference_mode()
def test_narrow_model_of_two_layers_copies_less_surely_and_sees_the_first_word() -> None:
    config = tiny_config(VOCABULARY, eos_token_id=7, hidden=320, layers=2)
    config._attn_implementation = "eager"
    narrow = build_model(config, MARKERS).eval()
    right = total = 0
    for seed in range(6):
        ids, sentence = marked_text(seed)
        output = narrow(torch.tensor([ids + sentence]), output_attentions=True)
        predicted = output.logits[0, len(ids) - 1 : -1].argmax(-1).tolist()
        right += sum(a == b for a, b in zip(predicted, sentence, strict=True))
        total += len(sentence)
        assert output.attentions[1][0, 0, ids.index(ANSWER) :, ids.index(QUESTION) + 1].min() > 0.99
    assert right / total > 0.9


def test_too_narrow_a_model_is_refused() -> None:
    with pytest.raises(ValueError, match="too few heads"):
        build_model(tiny_config(VOCABULARY, eos_token_id=7, hidden=256), MARKERS)


@torch.inference_mode()
def test_stretch_tells_apart_two_places_where_the_same_words_stand(model) -> None:
    """Six words occur twice in the marked sentence; only words further back decide what follows them."""
    right = total = 0
    for seed in range(12):
        chance = random.Random(seed)
        words = chance.sample(range(20, VOCABULARY), 46)
        phrase, first, second = words[:6], words[6:26], words[26:46]
        sentence = [*first, *phrase, words[6], *second, *phrase, words[26]]
        ids = [CONTEXT, EVIDENCE[0], *sentence, CLOSE, QUESTION, first[0], ANSWER, 9, EVIDENCE[0], *sentence]
        predicted = model(torch.tensor([ids])).logits[0, -len(sentence) - 1 : -1].argmax(-1).tolist()
        right += (predicted[26] == words[6]) + (predicted[-1] == words[26])
        total += 2
    assert right / total > 0.9


def test_weights_are_a_function_of_the_seed() -> None:
    config = tiny_config(VOCABULARY, eos_token_id=7)
    first, second, other_seed = (build_model(config, MARKERS, seed) for seed in (0, 0, 1))
    unchanged = [torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)]
    assert all(unchanged)
    assert not torch.equal(first.lm_head.weight, other_seed.lm_head.weight)
