// A pane: one lane's figures, its text, and a row for the draft of its latest step. The row has a fixed place and
// height, so that a changing draft never moves the text.
/** @import { LaneFrame, LaneMeters, ShownDraft } from "../lib/wire.d.ts" */
import { make, setText, setWords } from "../lib/dom.js";
import { formatSpeedup } from "../lib/format.js";
import { hueOf, isServed, shortTitle } from "../lib/lanes.js";
import { withoutBidiControls } from "../lib/pieces.js";
import { drawAccepted, drawOwn, drawProposed, drawRejected, drawVerified, fitPieces, keepTogether } from "./tokens.js";
import { TOOLTIPS, laneTooltip } from "../lib/tooltips.js";
import { REDUCED_MOTION, schedule, cancel } from "../lib/motion.js";

// How long a draft is shown before its verdict. This and the times below are guesses, not tuned.
const PROPOSED_MS = 70;
// The shortest time between two drafts, and the same if the visitor prefers reduced motion.
const DRAFT_MS = 200;
const CALM_DRAFT_MS = 800;
// How long rejected tokens stay.
const REJECTED_MS = 290;
// The smallest height of a line, in letter sizes: that of an accepted run with its underline.
const MIN_LINE = 1.4;
// A low pane has smaller letters, down to this size in pixels, rather than fewer lines.
const WANTED_LINES = 3;
const MIN_LETTER = 15.5;
// The sign before a badge, by its state. "law": the lane samples from vanilla's distribution.
const BADGE_SIGNS = { same: "✓", identical: "✓", law: "≈", differs: "≠", reference: "", none: "" };

// The part of a badge that fits into a narrow pane's head. An unfinished comparison keeps the words that say so, and a
// comparison with a server keeps the server's name.
export function shortBadge(text) {
  // Captures that part: of "identical so far" only "so far", and of "identical to vanilla" only "identical".
  const short =
    /^(?:identical (?=so far$))?(so far|identical(?: to (?!vanilla$).+)?|same (?:distribution|text as .+)|differs at (?:token|character) \d+(?: of .+)?)/;
  return short.exec(text)?.[1] ?? text;
}

// What became of a draft. A step without a draft is distinguished from one whose draft was rejected.
/** @param {Pick<ShownDraft, "drafted" | "accepted">} draft */
export function judgeDraft({ drafted, accepted }) {
  // A server may not report how many tokens it drafted.
  if (drafted === null)
    return accepted ? { kind: "accepted", words: `✓ ${accepted}` } : { kind: "none", words: "draft not reported" };
  if (!drafted) return { kind: "none", words: "no draft" };
  if (!accepted) return { kind: "refused", words: `× 0 of ${drafted}` };
  return { kind: "accepted", words: `✓ ${accepted} of ${drafted}` };
}

// The draft tokens so far. A server may report only those that it accepted.
/** @param {Pick<LaneMeters, "drafted" | "accepted">} meters */
export function countDrafts({ drafted, accepted }) {
  if (drafted) return `${accepted}/${drafted} accepted`;
  return accepted ? `${accepted} accepted` : "";
}

// Why an answer ends although the model did not end it; "" if the model did.
/** @param {Pick<LaneFrame, "end" | "loops" | "meters">} frame */
export function describeEnd({ end, loops, meters }) {
  return end === "length"
    ? `Stopped at the limit${meters.tokens ? ` of ${meters.tokens} tokens` : ""}${loops ? "; the text repeats itself" : ""}.`
    : "";
}

export class Pane {
  // `marks`: the texts before and after the model's thoughts in its answer, such as <think> and </think>; null: none.
  constructor(method, marks = null) {
    this.node = make("article", "pane");
    this.node.dataset.lane = method.lane;
    this.node.dataset.hue = hueOf(method);
    this.title = method.title;
    this.method = method;
    const head = make("header");
    this.speedup = make("b", "speedup", "–", TOOLTIPS.speedup);
    this.range = make("small", "range", "", TOOLTIPS.range);
    this.rate = make("b", "", "–");
    this.tau = make("b", "", "–");
    this.badge = make("span", "badge", "", TOOLTIPS.badge);
    this.loops = make("span", "loops", "↻", TOOLTIPS.loops);
    // A narrow pane leaves out what has the class "more".
    this.loops.append(make("span", "more", " repeats itself"));
    this.loops.hidden = true;
    const title = make("h3");
    this.solo = make("button", "solo", shortTitle(method), laneTooltip(method));
    this.solo.type = "button";
    this.solo.setAttribute("aria-pressed", "false");
    title.append(this.solo);
    this.leave = make("button", "all-lanes", "All lanes", "Show all lanes again");
    this.leave.type = "button";
    this.leave.hidden = true;
    const measured = make("small", "measured", `measured on ${method.lane}`, TOOLTIPS.measured);
    head.append(title, ...(isServed(method) ? [measured] : [this.speedup, this.range]));
    head.append(
      this.drawMeter("rate", this.rate, "tok/s"),
      this.drawMeter("tau", this.tau, "tok/step"),
      this.loops,
      this.badge,
      this.leave,
    );
    this.text = make("div", "text");
    this.text.tabIndex = 0;
    this.text.setAttribute("role", "region");
    this.text.setAttribute("aria-label", `Text of ${method.title}`);
    this.body = make("p", "", "");
    this.hint = make("p", "hint");
    setWords(this.hint, method.summary ?? "");
    this.ending = make("small", "ending");
    // In reverse order: the style sheet shows the last element first (column-reverse), so that the text's end stays
    // visible.
    this.thoughts = make("details", "thoughts");
    this.thought = make("p");
    this.thoughts.append(make("summary", "", "Thoughts"), this.thought);
    this.text.append(this.ending, this.hint, this.body);
    const foot = make("footer");
    this.label = make("span", "draft-label");
    this.draft = make("span", "draft");
    this.rest = make("span", "draft-rest", "", TOOLTIPS.rest);
    this.counts = make("span", "counts", "", TOOLTIPS.counts);
    foot.append(this.label, this.draft, this.rest, this.counts);
    this.node.append(head, this.text, foot);
    // The step whose draft was shown last; -1: none.
    this.draftStep = -1;
    this.marks = marks;
    this.hasThought = false;
    this.explainBoxes();
    this.text.addEventListener("scroll", () => this.markCut());
    new ResizeObserver(() => this.fit()).observe(this.text);
  }

  // Chooses the height of a line so that whole lines fill the pane.
  fit() {
    const height = this.text.clientHeight - parseFloat(getComputedStyle(this.text).paddingBottom);
    const letter = height / WANTED_LINES / MIN_LINE;
    if (letter >= MIN_LETTER) this.text.style.setProperty("--max-letter", `${letter}px`);
    else this.text.style.removeProperty("--max-letter");
    const size = parseFloat(getComputedStyle(this.body).fontSize);
    // The tolerance is for letters of which exactly three lines fit, whose size is rounded.
    const lines = Math.floor(height / (MIN_LINE * size) + 0.01);
    if (lines > 0) this.text.style.setProperty("--line", `${height / lines}px`);
    else this.text.style.removeProperty("--line");
    this.markCut();
    this.countRest();
  }

  // Marks whether a part of the text is hidden above the pane's edge; the text then fades there.
  markCut() {
    const { scrollHeight, clientHeight, scrollTop } = this.text;
    // The text scrolls from its end, so that the scroll position is negative. A few hidden pixels do not count.
    this.text.dataset.cut = String(scrollHeight - clientHeight + scrollTop > 4);
  }

  // Says why a server's lane has no boxes, where other lanes show their drafts.
  explainBoxes() {
    const { served } = this.method;
    if (!served || served.chunks_are_steps) return;
    this.label.textContent = "no boxes";
    this.draft.replaceChildren(make("span", "no-boxes", served.note, served.note));
  }

  // Resets the pane, for a replay that begins or goes back.
  clear() {
    this.cancelTasks();
    this.body.replaceChildren();
    this.thought.replaceChildren();
    this.thoughts.remove();
    this.hasThought = false;
    this.draft.replaceChildren();
    this.draftStep = -1;
    this.meters = this.lastDraft = undefined;
    this.setCounted(undefined);
    for (const figure of [this.speedup, this.rate, this.tau]) figure.textContent = "–";
    this.range.textContent = "";
    this.label.textContent = this.counts.textContent = this.ending.textContent = "";
    this.explainBoxes();
    this.setBadge("none", "");
    this.loops.hidden = true;
    this.hint.hidden = false;
    delete this.node.dataset.done;
    this.node.classList.remove("winner");
  }

  drawMeter(name, figure, unit) {
    const node = make("span", `meter ${name}`, undefined, TOOLTIPS[name]);
    node.append(figure, make("small", "", unit));
    return node;
  }

  // Shows a lane's frame after step number `step`. `linkRun(spans, run)` links an accepted run with the passages it was
  // copied from; `still`: without motion.
  apply(frame, linkRun, step, still) {
    const { meters } = frame;
    this.meters = meters;
    this.writeRuns(frame.runs, linkRun, step);
    this.setRate(meters.tokens_per_s);
    setText(this.tau, meters.tau ? meters.tau.toFixed(1) : "–");
    setText(this.counts, countDrafts(meters));
    this.setBadge(...frame.badge);
    this.loops.hidden = !frame.loops;
    setText(this.ending, describeEnd(frame));
    this.showDraft(frame.draft, still);
    if (frame.end) this.node.dataset.done = frame.end;
  }

  setRate(rate) {
    setText(this.rate, rate ? rate.toFixed(0) : "–");
  }

  // `range` is in words: the range of the speedup and the number of runs, as `describeRange` returns them.
  setSpeedup(speedup, range = "") {
    setText(this.speedup, speedup ? formatSpeedup(speedup) : "–");
    if (this.range.textContent === range) return;
    const [values, runs = ""] = range.split(/(?=, )/);
    this.range.replaceChildren(...(range ? [values, make("span", "more", runs)] : []));
  }

  setBadge(state, text) {
    if (this.badgeText === text && this.node.dataset.badge === state) return;
    this.badgeText = text;
    this.node.dataset.badge = state;
    const short = shortBadge(text);
    const sign = BADGE_SIGNS[state] && `${BADGE_SIGNS[state]} `;
    const [before, after = ""] = short ? text.split(short) : [""];
    this.badge.replaceChildren(
      sign,
      make("span", "more", before),
      make("span", "word", short),
      make("span", "more", after),
    );
    this.badge.title = `${text || "No tokens yet"}. ${TOOLTIPS.badge}`;
  }

  writeRuns(runs, linkRun, step) {
    for (const [kind, raw, count, spans] of runs) {
      const text = withoutBidiControls(raw);
      if (kind !== "accepted") this.writeOwn(text, step);
      else this.writeRun(text, count, step, spans && ((run) => linkRun(spans, run)));
    }
    this.foldThoughts();
    this.hint.hidden = true;
  }

  // Moves the thoughts at the beginning of the answer, up to the mark after them, into a part that can be opened.
  foldThoughts() {
    if (!this.marks || this.hasThought) return;
    const [begin, end] = this.marks;
    const folded = this.thought.textContent;
    const text = folded + this.body.textContent;
    if (!text.trimStart().startsWith(begin)) return;
    const endIndex = text.indexOf(end);
    this.hasThought = endIndex >= 0;
    let remaining = (this.hasThought ? endIndex + end.length : text.length) - folded.length;
    while (remaining > 0 && this.body.firstChild) {
      const node = /** @type {HTMLElement} */ (this.body.firstChild);
      const words = node.textContent;
      if (words.length <= remaining) this.thought.append(node);
      else {
        const part = /** @type {HTMLElement} */ (node.cloneNode());
        part.textContent = words.slice(0, remaining);
        this.thought.append(part);
        node.textContent = words.slice(remaining).trimStart();
      }
      remaining -= words.length;
    }
    if (this.thought.firstChild) this.text.append(this.thoughts);
  }

  // Adds text that was not drafted. Each step's text is a separate element, so that the step can be pointed at.
  writeOwn(text, step) {
    if (!this.body.lastChild && (this.hasThought || !this.thought.lastChild)) text = text.trimStart();
    keepTogether(this.body.lastChild, text);
    this.body.append(this.withStep(drawOwn(text), step));
  }

  // Adds an accepted run. The blank before it stays outside its box, so that two boxes never touch.
  writeRun(text, count, step, link) {
    const words = text.trimStart();
    if (text.length > words.length) this.writeOwn(text.slice(0, text.length - words.length), step);
    const run = drawAccepted(words, count);
    keepTogether(this.body.lastChild, words);
    if (words) this.body.append(this.withStep(run, step));
    if (words && link) link(run);
  }

  withStep(node, step) {
    node.dataset.step = step;
    return node;
  }

  // Outlines the words of one step.
  outlineStep(step) {
    for (const node of this.text.querySelectorAll(".at")) node.classList.remove("at");
    for (const node of this.text.querySelectorAll(`[data-step="${step}"]`)) node.classList.add("at");
  }

  /**
   * Shows a step's draft, at once or after the drafts before it. `still`: only its verdict, when `settle` is called.
   * @param {ShownDraft | null} draft
   * @param {boolean} still
   */
  showDraft(draft, still) {
    if (!draft || draft.step <= this.draftStep) return;
    this.draftStep = draft.step;
    this.nextDraft = this.lastDraft = draft;
    if (still) this.unsettled = true;
    else if (!this.playing) this.play();
  }

  cancelTasks() {
    cancel(this.verdictTask);
    cancel(this.nextTask);
    cancel(this.clearTask);
    this.playing = false;
  }

  // Shows the last draft's verdict permanently, with its rejected tokens: when a visitor looks at a single step, or at
  // the end.
  settle() {
    this.cancelTasks();
    this.unsettled = false;
    if (!this.lastDraft) return;
    this.showVerdict(this.lastDraft);
    cancel(this.clearTask);
  }

  // Shows the newest draft, and the next one only after DRAFT_MS, because a row that changes at every step cannot be
  // read.
  play() {
    const draft = this.nextDraft;
    this.nextDraft = undefined;
    this.playing = Boolean(draft);
    if (!draft) return;
    cancel(this.clearTask);
    const calm = REDUCED_MOTION.matches;
    if (draft.drafted && !calm) this.showProposed(draft);
    this.verdictTask = schedule(() => this.showVerdict(draft), draft.drafted && !calm ? PROPOSED_MS : 0);
    this.nextTask = schedule(() => this.play(), calm ? CALM_DRAFT_MS : DRAFT_MS);
  }

  /** @param {ShownDraft} draft */
  showProposed(draft) {
    this.label.textContent = `drafted ${draft.drafted}`;
    this.label.dataset.kind = "proposed";
    this.draft.replaceChildren(drawProposed([...draft.accepted_texts, ...draft.rejected]));
    this.setCounted(undefined);
  }

  /** @param {ShownDraft} draft */
  showVerdict(draft) {
    const { kind, words } = judgeDraft(draft);
    this.label.dataset.kind = kind;
    this.label.textContent = words;
    const rejected = draft.rejected.map(drawRejected);
    this.draft.replaceChildren(
      ...(draft.accepted_texts.join("") ? [drawVerified(draft.accepted_texts)] : []),
      ...rejected,
    );
    this.setCounted(draft);
    this.clearTask = schedule(() => {
      rejected.forEach((node) => node.remove());
      this.setCounted(undefined);
    }, REJECTED_MS);
  }

  // `draft`: the draft whose verdict the row shows; undefined if it shows none.
  /** @param {ShownDraft | undefined} draft */
  setCounted(draft) {
    this.counted = draft;
    this.countRest();
  }

  // Shows the number of draft tokens that the row leaves out: those of other branches, and those that have no room.
  countRest() {
    const { drafted, accepted } = this.counted ?? { drafted: 0, accepted: 0 };
    const box = this.draft.querySelector(".run, .proposed");
    const hidden = box ? fitPieces(box) : 0;
    // Only the first line is visible; the tokens without room are on lines below.
    const lineBottom = this.draft.firstElementChild?.getBoundingClientRect().bottom;
    const shown = [...this.draft.querySelectorAll(".rejected")].filter(
      (node) => node.getBoundingClientRect().top <= lineBottom,
    ).length;
    const rest = (drafted ?? accepted) - accepted - shown + hidden;
    setText(this.rest, rest > 0 ? `+${rest}` : "");
  }
}
