// A pane: one lane's figures, its text, and a row for the draft of its latest step. The row has a fixed place, so that
// guesses that come and go never move the text.
const PROPOSED_MS = 70, HELD_MS = 200, REJECTED_MS = 350;
const CALM = matchMedia("(prefers-reduced-motion: reduce)");
const MARKS = { same: "✓", identical: "✓", law: "≈", differs: "≠", reference: "", none: "" };
const MEANS = {
  speedup: "Speedup: tokens per second over vanilla's, both on their own clocks in this race.",
  rate: "Decode tokens per second on this lane's own clock: draft + model + cache. The prompt is not counted.",
  tau: "Tokens per step: tokens written for each run of the model. Vanilla has 1.00.",
  counts: "Drafted tokens that the model accepted / drafted tokens that it checked.",
  badge: "Whether this lane wrote exactly the tokens that vanilla wrote.",
  loops: "The text repeats itself, which flatters every drafter that copies.",
};

class Pane {
  constructor(method) {
    this.node = make("article", "pane");
    this.node.dataset.lane = method.lane;
    this.node.dataset.hue = method.hue ?? 7;
    this.title = method.title;
    const head = make("header");
    this.speedup = make("b", "speedup", "–", MEANS.speedup);
    this.rate = make("b", "", "–");
    this.tau = make("b", "", "–");
    this.badge = make("span", "badge", "", MEANS.badge);
    this.loops = make("span", "loops", "↻", MEANS.loops);
    this.loops.append(make("span", "more", " repeats itself"));
    this.loops.hidden = true;
    head.append(make("h3", "", method.title, method.summary), this.speedup);
    head.append(this.meter("rate", this.rate, "tok/s"), this.meter("tau", this.tau, "tok/step"), this.loops, this.badge);
    this.text = make("div", "text");
    this.text.tabIndex = 0;
    this.text.setAttribute("role", "region");
    this.text.setAttribute("aria-label", `Text of ${method.title}`);
    this.body = make("p", "", "");
    this.hint = make("p", "hint", method.summary ?? "");
    this.text.append(this.hint, this.body);
    const foot = make("footer");
    this.label = make("span", "draft-label");
    this.draft = make("span", "draft");
    this.counts = make("span", "counts", "", MEANS.counts);
    foot.append(this.label, this.draft, this.counts);
    this.node.append(head, this.text, foot);
    this.tokens = 0;
    this.step = -1;
  }

  meter(name, figure, unit) {
    const node = make("span", `meter ${name}`, undefined, MEANS[name]);
    node.append(figure, make("small", "", unit));
    return node;
  }

  apply(lane, light) {
    const { meters } = lane;
    this.write(lane, light);
    this.speedup.textContent = meters.tokens ? `${meters.speedup.toFixed(2)}×` : "–";
    this.rate.textContent = meters.tokens ? meters.tokens_per_s.toFixed(0) : "–";
    this.tau.textContent = meters.tokens ? meters.tau.toFixed(2) : "–";
    this.counts.textContent = meters.drafted ? `${meters.accepted}/${meters.drafted} accepted` : "";
    const [state, words] = lane.badge;
    this.node.dataset.badge = state;
    const short = /^(identical|same distribution|differs at token \d+)?/.exec(words)[0] || words;
    this.badge.textContent = [MARKS[state], short].filter(Boolean).join(" ");
    this.badge.append(make("span", "more", words.slice(short.length)));
    this.badge.title = `${words || "No tokens yet"}. ${MEANS.badge}`;
    this.loops.hidden = !lane.loops;
    if (lane.draft) this.take(lane.draft);
    if (lane.end) this.node.dataset.done = lane.end;
  }

  // Runs from token `base` on. A keyframe starts at 0: what is shown already stays, unless a frame was lost.
  write(lane, light) {
    let base = lane.base, index = 0;
    while (base < this.tokens && index < lane.runs.length) base += lane.runs[index++][2];
    if (base !== this.tokens) {
      if (lane.base !== 0) return;
      this.body.replaceChildren();
      this.tokens = index = 0;
    }
    for (const [kind, text, count, spans] of lane.runs.slice(index)) {
      this.tokens += count;
      if (kind === "accepted") this.writeRun(text, count);
      else this.writeOwn(text);
      if (spans) light(spans);
    }
    this.hint.hidden = this.tokens > 0;
  }

  writeOwn(text) {
    if (!this.body.lastChild) text = text.trimStart();
    const last = this.body.lastChild;
    if (last?.nodeType === Node.TEXT_NODE) last.appendData(text);
    else this.body.append(text);
  }

  // The blank before a run stays outside its box, so that two boxes never touch.
  writeRun(text, count) {
    const words = text.trimStart();
    if (text.length > words.length) this.writeOwn(text.slice(0, text.length - words.length));
    if (words) this.body.append(make("span", "run", words, `${count} drafted ${count > 1 ? "tokens" : "token"} accepted in one step`));
  }

  take(draft) {
    if (draft.step <= this.step) return;
    this.step = draft.step;
    this.next = draft;
    if (!this.playing) this.play();
  }

  // Each draft shown is held for a moment: a row that changes with every step cannot be read.
  play() {
    const draft = this.next;
    this.next = undefined;
    this.playing = Boolean(draft);
    if (!draft) return;
    clearTimeout(this.clearing);
    const calm = CALM.matches;
    if (draft.drafted && !calm) this.showProposed(draft);
    setTimeout(() => this.showVerdict(draft), draft.drafted && !calm ? PROPOSED_MS : 0);
    setTimeout(() => this.play(), calm ? 4 * HELD_MS : HELD_MS);
  }

  showProposed(draft) {
    this.label.textContent = `drafted ${draft.drafted}`;
    this.label.dataset.kind = "proposed";
    this.draft.replaceChildren(make("span", "proposed", (draft.yes + draft.no.join("")).trim()));
  }

  showVerdict(draft) {
    const kind = !draft.drafted ? "none" : draft.accepted ? "accepted" : "refused";
    this.label.dataset.kind = kind;
    this.label.textContent = { none: "no draft", accepted: `✓ ${draft.accepted} of ${draft.drafted}`, refused: `× 0 of ${draft.drafted}` }[kind];
    const rejected = draft.no.map((piece) => make("span", "rejected", piece.trim() || "·"));
    this.draft.replaceChildren(...(draft.yes ? [make("span", "run", draft.yes.trim() || "·")] : []), ...rejected);
    this.clearing = setTimeout(() => rejected.forEach((node) => node.remove()), REJECTED_MS);
  }
}
