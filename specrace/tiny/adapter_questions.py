"""Makes questions from a sentence: rules find its subject and verb, and ask for one of the other parts.

The rules need no part-of-speech tagger. They make no question from most sentences, so that few questions are nonsense.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from specrace.retrieval.sentences import word_set

_BE = word_set("is are was were")
# The ending of a verb -> the form of "do" for a question.
_DO = {"s": "does", "ed": "did", "": "do"}
_MODAL = word_set("can could may might must should will would cannot")
# Words that a subject must not contain.
_NO_SUBJECT = word_set(
    "it they this these those that he she we you i there here one such what our your their its his her let let’s if "
    "no another other now then thus also but so yet once sometimes often finally how similarly again instead as while "
    "however therefore perhaps maybe nothing everything something me us them still both either"
)
# Words that begin a clause, or join two clauses.
_CLAUSE = word_set("that which who whom whose when while where because since although if than as and or but not")
_PREPOSITIONS = word_set(
    "about across after against among around as at before between by during for from in inside into of on onto over "
    "through to toward under until upon using via with within without"
)
# First words of a phrase before the main clause, as in "In 1834, ...".
_LEAD_WORDS = word_set(
    "in on at by during for from after before with within among throughout under over until since through despite "
    "unlike like according"
)
_DETERMINERS = word_set("a an the one any some all both each every no many most several two three four")
# Base forms of verbs. Irregular verbs have their past form after a colon, then their participle if it differs.
_VERBS = (
    "accept act add affect allow appear apply argue assume attach avoid base begin:began:begun behave believe belong "
    "borrow break:broke:broken bring:brought build:built call carry cause challenge change check choose:chose:chosen "
    "claim collect combine communicate compile conclude conduct connect consider consist construct contain continue "
    "contribute convert copy cover create cross decide declare define demonstrate depend derive describe design "
    "determine develop differ discover divide document eat:ate:eaten emerge emphasize enable encourage end engage "
    "ensure establish evaluate evolve examine execute exist expect experience explain explore express extend face "
    "fail feed:fed find:found focus follow form gain gather generate get:got give:gave:given grow:grew:grown "
    "guarantee handle happen have:had help hold:held hunt identify illustrate implement import improve include "
    "increase indicate influence inherit introduce invent involve keep:kept know:knew:known lack lead:led learn "
    "leave:left limit link live lose:lost maintain make:made marry match mean:meant migrate move need note occur "
    "offer open operate own panic participate pass pay:paid perform permit play point practice prefer prevent print "
    "produce promote propose protect prove provide publish raise receive recognize record reduce refer reflect reject "
    "relate rely remain remove replace represent require resemble resolve respond return reveal rise:rose:risen "
    "run:ran:run see:saw:seen seek:sought seem separate serve settle shape share show:showed:shown signal simplify "
    "solve span speak:spoke:spoken specify spend:spent spread:spread start stop store study suggest support survive "
    "take:took:taken teach:taught tend think:thought trade transform travel treat try turn understand:understood use "
    "vary view want wear:wore:worn work write:wrote:written yield"
)
# Verbs that double their last letter before "ed".
_DOUBLED = word_set("permit stop occur refer prefer commit")


def _forms() -> tuple[dict[str, tuple[str, str]], frozenset[str]]:
    """A map from each verb form to its base and its ending ("s", "ed" or ""), and the past participles."""
    forms: dict[str, tuple[str, str]] = {}
    participles = set()
    for entry in _VERBS.split():
        base, *irregular = entry.split(":")
        stem = base[:-1] + "i" if re.search(r"[^aeiou]y$", base) else base
        forms[base] = (base, "")
        third_person = "has" if base == "have" else stem + ("es" if re.search(r"(s|sh|ch|x|o|i)$", stem) else "s")
        forms[third_person] = (base, "s")
        regular_past = base + base[-1] + "ed" if base in _DOUBLED else stem + ("d" if stem.endswith("e") else "ed")
        past, participle = (irregular[0], irregular[-1]) if irregular else (regular_past, regular_past)
        # A past form that equals the base form, such as "spread", counts as the base form.
        forms.setdefault(past, (base, "ed"))
        participles.add(participle)
    return forms, frozenset(participles)


_FORMS, _PARTICIPLES = _forms()


@dataclass(frozen=True)
class Clause:
    """The parts of a sentence.

    `lead` is a phrase before the main clause, as in "In 1834, ...". `auxiliary` is a form of "be", a modal verb, or
    do, does or did. `verb` is the base form of any other verb, else empty, and `spelled` is the verb as the sentence
    spells it. `after_verb` is the text after it.
    """

    lead: str
    subject: str
    auxiliary: str
    verb: str
    spelled: str
    after_verb: str

    @property
    def words(self) -> list[str]:
        """The words after the verb."""
        return self.after_verb.split()


def parse(sentence: str) -> Clause | None:
    """The main clause; None unless a short subject and its verb can be recognised."""
    text = re.sub(r"\s*\([^()]*\)", "", sentence).rstrip(".!? ")
    lead = ""
    # A capitalised word, then 2 to 60 characters up to a comma.
    match = re.match(r"([A-Z][a-z]+)( [^,]{2,60}), (?=\S)", text)
    if match and match[1].lower() in _LEAD_WORDS:
        lead, text = match[0][:-2], text[match.end() :]
    words = text.split()
    # Not a clause: text that begins with a subordinate clause or without a letter, or has a colon early, as a label.
    if not words or words[0].lower() in _CLAUSE or not re.match(r"[A-Za-z]", words[0]) or ":" in " ".join(words[:8]):
        return None
    # The subject has at most nine words, and at least one word follows the verb.
    for index in range(1, min(10, len(words) - 1)):
        word = words[index]
        before, after = words[index - 1].lower(), words[index + 1].lower()
        if word.endswith(",") or word.lower() in _CLAUSE:
            return None
        verb_parts = _main_verb(word, before, after)
        if verb_parts is None:
            continue
        if before in _DETERMINERS | _PREPOSITIONS or any(
            subject_word.lower() in _NO_SUBJECT for subject_word in words[:index]
        ):
            return None
        subject = " ".join(words[:index])
        subject = subject if lead else _lower_first(subject)
        auxiliary, verb = verb_parts
        return Clause(lead, subject, auxiliary, verb, word, " ".join(words[index + 1 :]))
    return None


def _main_verb(word: str, before: str, after: str) -> tuple[str, str] | None:
    """The auxiliary and the base form of a word that seems to be the main verb; None for any other word.

    `before`, `after`: its neighbours in lower case. A form of "be" or a modal verb is an auxiliary without base form.
    """
    if word in _BE or word in _MODAL:
        return word, ""
    base, ending = _FORMS.get(word, ("", ""))
    if (
        not base
        or after in _BE | _MODAL
        or (base == "have" and (after in _PARTICIPLES or after.endswith(("ed", "en"))))
    ):
        return None
    plural = (before.endswith("s") and not before.endswith("ss")) or before in ("people", "children", "men", "women")
    if ending == "ed":
        # Before a preposition, a word in "-ed" is more often a participle, as in "rocks formed by rivers".
        return None if after in _PREPOSITIONS else ("did", base)
    # The ending "s" belongs to a singular subject, the base form to a plural one.
    if (ending == "") != plural:
        return None
    return _DO[ending], base


def _lower_first(text: str) -> str:
    """The text with its first letter in lower case if its first word does not seem to be a name."""
    first = text.split()[0]
    is_common = first.lower() in _DETERMINERS | _LEAD_WORDS or (
        first.istitle() and first.lower().endswith(("s", "ing"))
    )
    if is_common or (first.istitle() and len(text.split()) > 1 and text.split()[1].islower()):
        return text[0].lower() + text[1:]
    return text


def questions(sentence: str, rng: random.Random) -> list[str]:
    """Questions that the sentence answers, in random order; empty if no rule fits.

    Some are in the list several times, so that they are more likely to come first.
    """
    clause, phrases = parse(sentence), _phrases(sentence)
    candidates = [rng.choice(PHRASE_FORMS).format(rng.choice(phrases)) for _ in range(2) if phrases]
    if clause is None:
        # Most sentences cannot be parsed, and questions about a phrase should not outnumber those about a clause.
        return [_clean(candidate) for candidate in candidates] if rng.random() < 0.4 else []
    candidates += _reasons(clause) + _times(clause) + _numbers(clause)
    if clause.auxiliary in _BE:
        candidates += _about_being(clause)
    elif clause.verb:
        candidates += _about_doing(clause)
    else:
        candidates += _about_modal(clause)
    forms = PLURAL_FORMS if clause.subject.endswith("s") else OPEN_FORMS
    candidates += [rng.choice(forms).format(clause.subject)]
    rng.shuffle(candidates)
    # Very short and long questions, and those with a comma, are mostly malformed.
    return [
        _clean(candidate) for candidate in candidates if 3 <= len(candidate.split()) <= 18 and "," not in candidate[:-1]
    ]


OPEN_FORMS = (
    "What do the documents say about {}?", "What is known about {}?", "Tell me about {}.", "Explain {}.",
    "Describe {}.", "What should I know about {}?", "Can you explain {}?", "What about {}?", "What role does {} play?",
    "Why does {} matter?", "How does {} work?", "What does {} do?", "What does {} mean?",
)  # fmt: skip
# The forms that also fit a plural: those without "does".
PLURAL_FORMS = OPEN_FORMS[:8]

PHRASE_FORMS = (
    "What do the documents say about {}?", "What is said about {}?", "Tell me about {}.", "What about {}?",
    "What has to do with {}?", "What is known about {}?", "Where does {} come in?", "What concerns {}?",
    "Is there anything on {}?", "What involves {}?", "What is the point of {}?", "Who or what is concerned with {}?",
)  # fmt: skip


def _phrases(sentence: str) -> list[str]:
    """Noun phrases from the sentence's later part: from an article up to a word that begins another phrase."""
    words = re.sub(r"\s*\([^()]*\)", "", sentence).rstrip(".!? ").split()
    phrases = []
    for index, word in enumerate(words[3:], 3):
        if word not in ("the", "a", "an"):
            continue
        phrase = [word]
        for follower in words[index + 1 : index + 5]:
            if follower.lower() in _PREPOSITIONS | _CLAUSE | _BE | _MODAL or follower in _FORMS:
                break
            phrase.append(follower.rstrip(",;:"))
            if follower[-1] in ",;:":
                break
        # A single noun makes a specific question only if it is long.
        if len(phrase) > 2 or len(phrase[-1]) > 7:
            phrases.append(" ".join(phrase))
    return phrases


def _clean(question: str) -> str:
    """The question with single spaces, an affirmative "can", no underscores, and a capital at the start."""
    question = re.sub(r"\s+", " ", question).replace("cannot ", "can ").replace("_", "")
    return question[0].upper() + question[1:]


def _first_words(words: list[str], max_words: int) -> str:
    """The first `max_words` words or fewer: up to a comma, a new clause, or if possible the end of a phrase."""
    if len(words) > max_words:
        phrase_starts = [index for index in range(2, max_words + 1) if words[index].lower() in _PREPOSITIONS]
        max_words = phrase_starts[-1] if phrase_starts else max_words
    first: list[str] = []
    for word in words[:max_words]:
        if word.lower() in _CLAUSE - {"as"} and first:
            break
        first.append(word.rstrip(",;:"))
        if word[-1] in ",;:":
            break
    while first and first[-1].lower() in _PREPOSITIONS | _DETERMINERS | _CLAUSE:
        first.pop()
    return " ".join(first)


def _predicate(clause: Clause, max_words: int) -> str:
    """The verb, and at most `max_words` words after it."""
    return f"{clause.verb} {_first_words(clause.words, max_words)}".strip()


def _reasons(clause: Clause) -> list[str]:
    """Questions about the reason in the clause, if it has one."""
    reason = re.search(r"\b(because|so that|due to|in order to|as a result of)\b", clause.after_verb)
    if reason is None:
        return []
    complement = _first_words(clause.after_verb[: reason.start()].split(), 8)
    question = f"{clause.auxiliary} {clause.subject} {f'{clause.verb} {complement}'.strip()}?"
    return [
        f"Why {question}",
        f"Why {question}",
        f"For what reason {question}",
        f"Explain why {clause.subject} {clause.spelled} {complement}.",
    ]


def _times(clause: Clause) -> list[str]:
    """Questions about the year in the clause, if it has one."""
    if not re.search(r"\b(1[0-9]|20)\d\d\b", f"{clause.lead} {clause.after_verb}") or clause.auxiliary in _MODAL:
        return []
    # The words before the year.
    words = re.sub(r"\b(in|since|by|around|from|until) (1[0-9]|20)\d\d.*", "", clause.after_verb).split()
    event = f"{clause.auxiliary} {clause.subject} {clause.verb} {_first_words(words, 6)}".strip()
    return [f"When {event}?", f"When {event}?", f"In which year {event}?"]


# A number with its unit or noun (group 1), as in "about 300 to 400 thousand people".
_NUMBER = re.compile(
    r"(?:(?:about|around|nearly|almost|only|roughly|approximately|over|up to|more than|less than|at least|between) )?"
    r"(?:\d[\d,.]*|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty|thirty|fifty|several) "
    r"(?:to \S+ |and \S+ )?"
    r"(?:hundred |thousand |million |billion )?(percent|[a-z]+s|people)\b"
)
# The word after "how" -> the units for which it asks.
_MEASURES = {
    "long": word_set("seconds minutes hours days weeks months years decades centuries"),
    "far": word_set("kilometers kilometres miles meters metres km"),
}


def _numbers(clause: Clause) -> list[str]:
    """Questions about the number after the verb, if there is one."""
    number = _NUMBER.match(clause.after_verb)
    if number is None:
        return []
    noun, after = number[1], _first_words(clause.after_verb[number.end() :].split(), 5)
    tail = f"{clause.auxiliary} {clause.subject} {clause.verb} {after}".strip()
    measure = next((measure for measure, units in _MEASURES.items() if noun in units), "")
    if measure:
        return [f"How {measure} {tail}?"] * 3
    return [] if noun == "percent" else [f"How many {noun} {tail}?"] * 3


# Each pair is a word and what may replace it.
_SYNONYM_PAIRS = (
    "build:construct begin:start create:make show:demonstrate help:assist require:need allow:let "
    "important:significant people:humans often:frequently use:employ used:employed large:big small:little "
    "main:principal usually:normally change:alter keep:maintain kept:maintained called:named describe:characterize "
    "made:created first:originally provide:offer improve:enhance reduce:lower increase:raise produce:generate "
    "different:distinct difficult:hard common:widespread purpose:goal happen:occur became:turned developed:created "
    "studied:examined method:approach problem:issue children:kids food:nutrition home:house entire:whole quick:fast "
    "begins:starts contain:include depend:rely remain:stay rapidly:quickly ancient:old early:initial "
    "specific:particular believe:think gather:collect argue:claim suggest:propose explain:clarify needed:required "
    "stored:kept"
)
_SYNONYMS = dict(pair.split(":") for pair in _SYNONYM_PAIRS.split())


def reword(question: str, rng: random.Random) -> str:
    """The question with some words replaced by synonyms, so that matching words is not enough to find the answer."""
    words = (_SYNONYMS.get(word, word) if rng.random() < 0.6 else word for word in question.split(" "))
    return " ".join(words)


def _about_being(clause: Clause) -> list[str]:
    """Questions about a clause with a form of "be"."""
    be, subject, words = clause.auxiliary, clause.subject, clause.words
    first = words[0].lower() if words else ""
    results = [f"{be} {subject} {_first_words(words, 6)}?"]
    if first in _DETERMINERS:
        results += [f"What {be} {subject}?"] * 3 + [f"What exactly {be} {subject}?", f"Explain what {subject} {be}."]
        if first in ("the", "one"):
            results += [f"What {be} {_first_words(words, 9)}?", f"Which {be} {_first_words(words, 9)}?"] * 2
    elif first in _PARTICIPLES or first.endswith("ed"):
        results += [f"How {be} {subject} {first}?"]
        if len(words) > 2 and words[1] in _PREPOSITIONS:
            results += [f"What {be} {subject} {first} {words[1]}?"] * 2
            results += [f"Where {be} {subject} {first}?"] if words[1] in ("in", "on", "at", "inside", "within") else []
            results += [f"Who or what {first} {subject}?"] if words[1] == "by" else []
    else:
        results += [f"Why {be} {subject} {_first_words(words, 4)}?"]
    return results


def _about_modal(clause: Clause) -> list[str]:
    """Questions about a clause with a modal verb."""
    words = clause.words
    modal, subject = clause.auxiliary, clause.subject
    if not words or words[0] in ("not", "be", "have", "also", "only"):
        return [f"{modal} {subject} {_first_words([word for word in words if word != 'not'], 6)}?"]
    results = [
        f"What {modal} {subject} {words[0]}?",
        f"What {modal} {subject} do?",
        f"{modal} {subject} {_first_words(words, 7)}?",
    ]
    if (
        " by " in clause.after_verb
        or " through " in clause.after_verb
        or " with " in clause.after_verb
        or " using " in clause.after_verb
    ):
        results += [f"How {modal} {subject} {_first_words(words, 5)}?"] * 2
    return results


def _about_doing(clause: Clause) -> list[str]:
    """Questions about a clause with any other verb."""
    do, subject = clause.auxiliary, clause.subject
    verb, words = clause.verb, clause.words
    results = [f"{do} {subject} {_predicate(clause, 6)}?", f"How {do} {subject} {_predicate(clause, 4)}?"]
    results += [f"Explain how {subject} {clause.spelled} {_first_words(words, 5)}."] if words else []
    first = words[0].lower() if words else ""
    if first in _PREPOSITIONS:
        results += [f"What {do} {subject} {verb} {first}?"] * 2
        results += [f"Where {do} {subject} {verb}?"] if first in ("in", "on", "at") else []
    else:
        results += [f"What {do} {subject} {verb}?"] * 2
    # The subject of a verb in the past tense is taken for a person.
    results += [f"{'Who' if do == 'did' else 'What'} {clause.spelled} {_first_words(words, 7)}?"] * 4
    results += (
        [f"Which {subject.split()[-1]} {clause.spelled} {_first_words(words, 6)}?"] if len(subject.split()) > 2 else []
    )
    return results
