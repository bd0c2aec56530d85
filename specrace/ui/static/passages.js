// Retrieved passages, and which words of an answer were drafted from where. Offsets count characters as Python does,
// hence the arrays of code points.
import { make } from "./dom.js";
import { Sources } from "./sources.js";

const REDRAW_MS = 250;
const WORDS = ".passage mark.drafted";

// Where a text has to be cut so that each piece is evidence or not, and has the same links, as a whole.
export function findEdges(evidence, links) {
  const size = evidence.length;
  const edges = new Set([0, size]);
  for (let place = 1; place < size; place++) if (evidence[place] !== evidence[place - 1]) edges.add(place);
  for (const { start, end } of links) edges.add(Math.min(start, size)).add(Math.min(end, size));
  return [...edges].sort((a, b) => a - b);
}

class Passage {
  constructor(passage, number) {
    this.characters = Array.from(passage.text);
    this.evidence = new Uint8Array(this.characters.length);
    for (const [start, end] of passage.evidence) this.evidence.fill(1, start, end);
    this.links = [];
    this.node = make("article", "passage");
    const head = make("header");
    head.append(make("span", "number", `[${number}]`), make("h3", "", passage.title));
    head.append(make("span", "score", passage.score.toFixed(2), "Cosine between the question and this passage."));
    this.text = make("p");
    this.node.append(head, this.text, make("footer", "", [passage.document, passage.place].filter(Boolean).join(", ")));
    this.draw();
  }

  // Nothing is drafted from here yet.
  dim() {
    this.links = [];
    this.stale = true;
  }

  // The accepted run `run`, an element of a pane, has the words from `start` to `end`.
  link(start, end, run) {
    this.links.push({ start, end, run });
    this.stale = true;
  }

  // One mark for every stretch that the same runs have; a run that a pane has dropped counts no more.
  draw() {
    this.stale = false;
    this.links = this.links.filter(({ run }) => run.isConnected);
    const places = findEdges(this.evidence, this.links);
    this.text.replaceChildren(...places.slice(0, -1).map((start, index) => this.stretch(start, places[index + 1])));
  }

  stretch(start, end) {
    const text = this.characters.slice(start, end).join("");
    const runs = this.links.filter((link) => link.start < end && start < link.end).map((link) => link.run);
    const names = [this.evidence[start] && "evidence", runs.length && "drafted"].filter(Boolean);
    if (!names.length) return document.createTextNode(text);
    const mark = make("mark", names.join(" "), text);
    Object.assign(mark, { start, end, runs });
    if (runs.length) mark.tabIndex = -1;
    return mark;
  }

  marks(start, end) {
    return [...this.text.querySelectorAll("mark.drafted")].filter((mark) => mark.start < end && start < mark.end);
  }
}

export class Passages {
  constructor(host) {
    this.host = host;
    this.list = [];
    this.spans = new WeakMap();
    this.lit = [];
    this.sources = new Sources();
    host.querySelector(".cards").before(this.sources.node);
    for (const name of ["pointerover", "focusin"])
      host.addEventListener(name, ({ target }) => this.pointAtWords(target.closest?.(WORDS)));
    for (const name of ["pointerleave", "focusout"]) host.addEventListener(name, () => this.point());
    host.addEventListener("keydown", (event) =>
      this.step(event, WORDS, (mark) => mark.runs?.find((run) => run.isConnected)),
    );
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.seen = isIntersecting;
      if (this.late) this.redraw();
    }).observe(host);
  }

  // Runs in the panes light up their words here, and are lit by them.
  watch(panes) {
    for (const name of ["pointerover", "focusin"])
      panes.addEventListener(name, ({ target }) => this.pointAtRun(target.closest?.(".run")));
    for (const name of ["pointerleave", "focusout"]) panes.addEventListener(name, () => this.point());
    panes.addEventListener("keydown", (event) => this.step(event, ".run.linked", (run) => this.marks(run)[0]));
  }

  show(passages, lanes = []) {
    this.list = passages.map((passage, index) => new Passage(passage, index + 1));
    this.host.querySelector(".cards").replaceChildren(...this.list.map((passage) => passage.node));
    this.sources.show(lanes);
    this.host.hidden = !this.list.length;
  }

  // Accepted runs say where they were copied from; redrawn at most four times a second.
  light(spans, run) {
    this.spans.set(run, spans);
    for (const [passage, start, end] of spans) this.list[passage]?.link(start, end, run);
    const numbers = [...new Set(spans.map(([passage]) => passage + 1))];
    run.title += `, from passage ${numbers.join(" and ")}`;
    run.classList.add("linked");
    run.tabIndex = run.parentNode?.querySelector(".run[tabindex='0']") ? -1 : 0;
    this.redraw();
  }

  count(lane, sources) {
    const row = this.sources.rows[lane];
    if (row) row.counts = sources ?? [];
    this.redraw();
  }

  // A replay begins anew.
  dim() {
    for (const passage of this.list) passage.dim();
    this.sources.dim();
    this.redraw();
  }

  // While a race runs, what nobody sees waits: the race may be on the same machine.
  redraw() {
    this.late = this.live && !this.seen;
    if (!this.late) this.timer ??= setTimeout(() => this.drawNow(), REDRAW_MS);
  }

  drawNow() {
    clearTimeout(this.timer);
    this.timer = undefined;
    for (const passage of this.list) if (passage.stale) passage.draw();
    this.sources.draw();
    if (this.pointed?.isConnected) this.pointAtRun(this.pointed);
  }

  // The words in the passages that a run was drafted from.
  marks(run) {
    return (this.spans.get(run) ?? []).flatMap(([passage, start, end]) => this.list[passage]?.marks(start, end) ?? []);
  }

  point(nodes = []) {
    for (const node of this.lit) node.classList.remove("lit");
    this.lit = nodes;
    this.pointed = undefined;
    for (const node of nodes) node.classList.add("lit");
  }

  pointAtRun(run) {
    if (!run || !this.spans.has(run)) return this.point();
    if (this.list.some((passage) => passage.stale)) this.drawNow();
    const marks = this.marks(run);
    this.point([run, ...marks]);
    this.pointed = run;
    this.reveal(marks[0]);
    return undefined;
  }

  pointAtWords(mark) {
    if (!mark) return this.point();
    return this.point([mark, ...mark.runs.filter((run) => run.isConnected)]);
  }

  // Within the column of passages, where it has one; the page itself stays where it is.
  reveal(mark) {
    const { host } = this;
    if (!mark || host.scrollHeight <= host.clientHeight || getComputedStyle(host).overflowY !== "auto") return;
    const frame = host.getBoundingClientRect();
    const place = mark.getBoundingClientRect();
    if (place.top < frame.top || place.bottom > frame.bottom)
      host.scrollTop += place.top - frame.top - frame.height / 3;
  }

  // Arrows walk from one to the next; Enter goes to the other end of the link.
  step(event, selector, other) {
    const node = event.target.closest?.(selector);
    if (!node) return;
    const list = [...event.currentTarget.querySelectorAll(selector)];
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const next = by ? list[list.indexOf(node) + by] : event.key === "Enter" ? other(node) : undefined;
    if (!by && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    next?.focus();
  }
}
