"""The copying circuit before any training: the constructed weights must already copy.

In layer 0, heads attend 1, 2, ... tokens back, to the stretch (the tokens before those), and to the latest marker, a
special token that begins a segment. A marked sentence has an evidence marker before it.
"""

from __future__ import annotations

import random

import pytest
import torch

from specrace.tiny.circuit import Heads, Markers, build_model, tiny_config

VOCABULARY = 1024
HEADS = Heads.of(512)
# The ids of the segment markers; 7 is end-of-text, and ids from 20 on are words.
CONTEXT, EVIDENCE, QUESTION, ANSWER, CLOSE = 1, (2, 3, 4), 5, 6, 8
MARKERS = Markers(EVIDENCE, QUESTION, ANSWER, (CONTEXT, CLOSE))


@pytest.fixture(scope="module")
def model():
    config = tiny_config(VOCABULARY, eos_token_id=7)
    config._attn_implementation = "eager"
    return build_model(config, MARKERS).eval()


def marked_text(seed: int) -> tuple[list[int], list[int]]:
    """(ids, the marked sentence to copy next).

    The ids are a context of twelve sentences, three of them marked; a question that repeats half of the second marked
    sentence; and the beginning of the answer.
    """
    rng = random.Random(seed)
    sentences = [[rng.randrange(20, VOCABULARY) for _ in range(25)] for _ in range(12)]
    marked = rng.sample(range(12), 3)
    ids = [CONTEXT]
    for number, sentence in enumerate(sentences):
        ids += [EVIDENCE[marked.index(number)], *sentence, CLOSE] if number in marked else sentence
    ids += [QUESTION, *sentences[marked[1]][6:18], ANSWER, 9, 10, 11, EVIDENCE[1]]
    return ids, sentences[marked[1]]


def share_copied(model, texts: list[tuple[list[int], list[int]]]) -> float:
    """The share of the sentences' tokens that the model predicts right, each sentence after its text."""
    num_right = num_tokens = 0
    for ids, sentence in texts:
        predicted = model(torch.tensor([ids + sentence])).logits[0, len(ids) - 1 : -1].argmax(-1).tolist()
        num_right += sum(token == expected for token, expected in zip(predicted, sentence, strict=True))
        num_tokens += len(sentence)
    return num_right / num_tokens


@torch.inference_mode()
def test_a_marked_sentence_is_copied_even_if_the_question_repeats_half_of_it(model) -> None:
    assert share_copied(model, [marked_text(seed) for seed in range(3)]) > 0.97


@torch.inference_mode()
def test_the_heads_of_layer_0_attend_at_their_distances(model) -> None:
    ids, _ = marked_text(0)
    attention = model(torch.tensor([ids]), output_attentions=True).attentions[0][0]
    for head in range(HEADS.num_back):
        positions = range(HEADS.num_back, len(ids))
        assert min(attention[head, position, position - head - 1] for position in positions) > 0.99
    for position in range(20, len(ids)):
        assert attention[HEADS.stretch, position, position - 20 : position - 3].sum() > 0.9


@torch.inference_mode()
def test_a_head_attends_to_the_latest_marker_up_to_155_tokens_back(model) -> None:
    rng = random.Random(1)
    ids: list[int] = []
    for marker, length in (
        (CONTEXT, 9),
        (EVIDENCE[0], 150),
        (EVIDENCE[1], 9),
        (EVIDENCE[2], 155),
        (CLOSE, 30),
        (QUESTION, 12),
    ):
        ids += [marker, *(rng.randrange(20, VOCABULARY) for _ in range(length))]
    attention = model(torch.tensor([ids]), output_attentions=True).attentions[0][0, HEADS.latest]
    latest_marker = 0
    for position, token in enumerate(ids):
        if token in MARKERS.ids:
            latest_marker = position
        assert attention[position, latest_marker] > 0.9


@torch.inference_mode()
def test_a_long_marked_sentence_is_copied_to_its_end_beside_its_shuffled_phrases(model) -> None:
    """The other marked sentences have the phrases of the copied one, ten tokens each, in another order or reversed."""
    texts = []
    for seed in range(2):
        rng = random.Random(seed)
        phrases = [[rng.randrange(20, VOCABULARY) for _ in range(10)] for _ in range(14)]
        sentence = [token for phrase in phrases for token in phrase]
        shuffled = [token for phrase in rng.sample(phrases, len(phrases)) for token in phrase]
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
        ids += [CLOSE, QUESTION, 12, ANSWER, 9, EVIDENCE[1]]
        texts.append((ids, sentence))
    assert share_copied(model, texts) > 0.99


@torch.inference_mode()
def test_the_answer_attends_to_the_first_two_words_of_the_question(model) -> None:
    ids, sentence = marked_text(0)
    ids += sentence
    attention = model(torch.tensor([ids]), output_attentions=True).attentions[2][0]
    for head in range(2):
        assert attention[head, ids.index(ANSWER) :, ids.index(QUESTION) + 1 + head].min() > 0.99


@torch.inference_mode()
def test_a_narrow_model_of_two_layers_copies_and_attends_to_the_first_word_of_the_question() -> None:
    config = tiny_config(VOCABULARY, eos_token_id=7, hidden=320, layers=2)
    config._attn_implementation = "eager"
    narrow_model = build_model(config, MARKERS).eval()
    texts = [marked_text(seed) for seed in range(3)]
    # The wide model copies more than 0.97 of the tokens.
    assert share_copied(narrow_model, texts) > 0.9
    for ids, sentence in texts:
        attention = narrow_model(torch.tensor([ids + sentence]), output_attentions=True).attentions[1][0]
        assert attention[0, ids.index(ANSWER) :, ids.index(QUESTION) + 1].min() > 0.99


def test_a_width_with_too_few_heads_is_refused() -> None:
    with pytest.raises(ValueError, match="too few heads"):
        build_model(tiny_config(VOCABULARY, eos_token_id=7, hidden=256), MARKERS)


@torch.inference_mode()
def test_the_stretch_head_distinguishes_two_occurrences_of_a_phrase(model) -> None:
    """A phrase of six words occurs twice in the marked sentence; which word follows depends on the 20 words before."""
    num_right = num_followers = 0
    for seed in range(12):
        rng = random.Random(seed)
        words = rng.sample(range(20, VOCABULARY), 46)
        phrase, first, second = words[:6], words[6:26], words[26:46]
        sentence = [*first, *phrase, first[0], *second, *phrase, second[0]]
        ids = [CONTEXT, EVIDENCE[0], *sentence, CLOSE, QUESTION, first[0], ANSWER, 9, EVIDENCE[0], *sentence]
        predicted = model(torch.tensor([ids])).logits[0, -len(sentence) - 1 : -1].argmax(-1).tolist()
        # The words after the two occurrences of the phrase.
        num_right += (predicted[26] == first[0]) + (predicted[-1] == second[0])
        num_followers += 2
    assert num_right / num_followers > 0.9


def test_weights_depend_only_on_the_seed() -> None:
    config = tiny_config(VOCABULARY, eos_token_id=7, hidden=320, layers=2)
    model, repeated, other_seed = (build_model(config, MARKERS, seed) for seed in (0, 0, 1))
    parameters = zip(model.parameters(), repeated.parameters(), strict=True)
    assert all(torch.equal(parameter, expected) for parameter, expected in parameters)
    assert not torch.equal(model.lm_head.weight, other_seed.lm_head.weight)
