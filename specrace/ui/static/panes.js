// A pane: one lane's figures, its text, and a row for the draft of its latest step. The row has a fixed place, so that
// drafts that come and go never move the text.
import { make, write } from "./dom.js";
import { times } from "./format.js";
import { hueOf } from "./lanes.js";
import { withoutTurns } from "./pieces.js";
import { drawAccepted, drawOwn, drawProposed, drawRejected, drawVerified } from "./tokens.js";
import { MEANS, describeLane } from "./tooltips.js";
import { CALM, later, never } from "./motion.js";

const PROPOSED_MS = 70;
const HELD_MS = 200;
const REJECTED_MS = 290;
const MARKS = { same: "✓", identical: "✓", law: "≈", differs: "≠", reference: "", none: "" };

// As much of a badge as a pane's head has room for.
export function shortBadge(words) {
  return /^(identical|same distribution|differs at token \d+)?/.exec(words)[0] || words;
}

// What became of a draft: "no draft" and "none of it accepted" are two things.
export function judgeDraft({ drafted, accepted }) {
  if (!drafted) return { kind: "none", words: "no draft" };
  if (!accepted) return { kind: "refused", words: `× 0 of ${drafted}` };
  return { kind: "accepted", words: `✓ ${accepted} of ${drafted}` };
}

// Why an answer ends where the model did not end it.
export function describeEnd({ end, loops, meters }) {
  return end === "length"
    ? `Stopped at the limit of ${meters.tokens} tokens${loops ? "; the text repeats itself" : ""}.`
    : "";
}

export class Pane {
  constructor(method) {
    this.node = make("article", "pane");
    this.node.dataset.lane = method.lane;
    this.node.dataset.hue = hueOf(method);
    this.title = method.title;
    this.method = method;
    const head = make("header");
    this.speedup = make("b", "speedup", "–", MEANS.speedup);
    this.range = make("small", "range", "", MEANS.range);
    this.rate = make("b", "", "–");
    this.tau = make("b", "", "–");
    this.badge = make("span", "badge", "", MEANS.badge);
    this.loops = make("span", "loops", "↻", MEANS.loops);
    this.loops.append(make("span", "more", " repeats itself"));
    this.loops.hidden = true;
    const title = make("h3");
    this.solo = make("button", "solo", method.title, describeLane(method));
    this.solo.type = "button";
    this.solo.setAttribute("aria-pressed", "false");
    title.append(this.solo);
    head.append(title, this.speedup, this.range);
    head.append(
      this.meter("rate", this.rate, "tok/s"),
      this.meter("tau", this.tau, "tok/step"),
      this.loops,
      this.badge,
    );
    this.text = make("div", "text");
    this.text.tabIndex = 0;
    this.text.setAttribute("role", "region");
    this.text.setAttribute("aria-label", `Text of ${method.title}`);
    this.body = make("p", "", "");
    this.hint = make("p", "hint", method.summary ?? "");
    this.ending = make("small", "ending");
    // The last line first, as the style has them.
    this.text.append(this.ending, this.hint, this.body);
    const foot = make("footer");
    this.label = make("span", "draft-label");
    this.draft = make("span", "draft");
    this.counts = make("span", "counts", "", MEANS.counts);
    foot.append(this.label, this.draft, this.counts);
    this.node.append(head, this.text, foot);
    this.step = -1;
  }

  // As before the race: a replay begins, or goes back.
  clear() {
    this.halt();
    this.body.replaceChildren();
    this.draft.replaceChildren();
    this.step = -1;
    this.meters = this.last = undefined;
    for (const figure of [this.speedup, this.rate, this.tau]) figure.textContent = "–";
    this.range.textContent = "";
    this.label.textContent = this.counts.textContent = this.ending.textContent = "";
    this.setBadge("none", "");
    this.loops.hidden = true;
    this.hint.hidden = false;
    delete this.node.dataset.done;
    this.node.classList.remove("winner");
  }

  meter(name, figure, unit) {
    const node = make("span", `meter ${name}`, undefined, MEANS[name]);
    node.append(figure, make("small", "", unit));
    return node;
  }

  // What step `step` has changed; `still`: it stays as it is.
  apply(frame, light, step, still) {
    const { meters } = frame;
    this.meters = meters;
    this.write(frame.runs, light, step);
    this.setRate(meters.tokens_per_s);
    write(this.tau, meters.tau.toFixed(1));
    write(this.counts, meters.drafted ? `${meters.accepted}/${meters.drafted} accepted` : "");
    this.setBadge(...frame.badge);
    this.loops.hidden = !frame.loops;
    write(this.ending, describeEnd(frame));
    this.take(frame.draft, still);
    if (frame.end) this.node.dataset.done = frame.end;
  }

  setRate(rate) {
    write(this.rate, rate ? rate.toFixed(0) : "–");
  }

  // `range`: what the figure rests on, in words.
  setSpeedup(speedup, range = "") {
    write(this.speedup, speedup ? times(speedup) : "–");
    if (this.range.textContent === range) return;
    const [values, runs = ""] = range.split(/(?=, )/);
    this.range.replaceChildren(...(range ? [values, make("span", "more", runs)] : []));
  }

  setBadge(state, words) {
    if (this.said === words && this.node.dataset.badge === state) return;
    this.said = words;
    this.node.dataset.badge = state;
    const short = shortBadge(words);
    const mark = MARKS[state] && `${MARKS[state]} `;
    this.badge.replaceChildren(mark, make("span", "word", short), make("span", "more", words.slice(short.length)));
    this.badge.title = `${words || "No tokens yet"}. ${MEANS.badge}`;
  }

  write(runs, light, step) {
    for (const [kind, raw, count, spans] of runs) {
      const text = withoutTurns(raw);
      if (kind !== "accepted") this.writeOwn(text, step);
      else this.writeRun(text, count, step, spans && ((run) => light(spans, run)));
    }
    this.hint.hidden = true;
  }

  // Every step's text is an element of its own, so that it can be pointed at.
  writeOwn(text, step) {
    if (!this.body.lastChild) text = text.trimStart();
    this.body.append(this.numbered(drawOwn(text), step));
  }

  // The blank before a run stays outside its box, so that two boxes never touch.
  writeRun(text, count, step, link) {
    const words = text.trimStart();
    if (text.length > words.length) this.writeOwn(text.slice(0, text.length - words.length), step);
    const run = drawAccepted(words, count);
    if (words) this.body.append(this.numbered(run, step));
    if (words && link) link(run);
  }

  numbered(node, step) {
    node.dataset.step = step;
    return node;
  }

  // The words of one step, outlined.
  point(step) {
    for (const node of this.body.querySelectorAll(".at")) node.classList.remove("at");
    for (const node of this.body.querySelectorAll(`[data-step="${step}"]`)) node.classList.add("at");
  }

  take(draft, still) {
    if (draft.step <= this.step) return;
    this.step = draft.step;
    this.next = this.last = draft;
    if (still) this.unsettled = true;
    else if (!this.playing) this.play();
  }

  halt() {
    never(this.judging);
    never(this.going);
    never(this.clearing);
    this.playing = false;
  }

  // After steps by hand, or at the end: the last draft's verdict, and its rejected tokens stay.
  settle() {
    this.halt();
    this.unsettled = false;
    if (!this.last) return;
    this.showVerdict(this.last);
    never(this.clearing);
  }

  // Each draft shown is held for a moment: a row that changes with every step cannot be read.
  play() {
    const draft = this.next;
    this.next = undefined;
    this.playing = Boolean(draft);
    if (!draft) return;
    never(this.clearing);
    const calm = CALM.matches;
    if (draft.drafted && !calm) this.showProposed(draft);
    this.judging = later(() => this.showVerdict(draft), draft.drafted && !calm ? PROPOSED_MS : 0);
    this.going = later(() => this.play(), calm ? 4 * HELD_MS : HELD_MS);
  }

  showProposed(draft) {
    this.label.textContent = `drafted ${draft.drafted}`;
    this.label.dataset.kind = "proposed";
    this.draft.replaceChildren(drawProposed(draft.yes + draft.no.join("")));
  }

  showVerdict(draft) {
    const { kind, words } = judgeDraft(draft);
    this.label.dataset.kind = kind;
    this.label.textContent = words;
    const rejected = draft.no.map(drawRejected);
    this.draft.replaceChildren(...(draft.yes ? [drawVerified(draft.yes)] : []), ...rejected);
    this.clearing = later(() => rejected.forEach((node) => node.remove()), REJECTED_MS);
  }
}
