// The retrieved passages, and links between their words and the words of answers that were drafted from them. Offsets
// count code points, as in Python, hence the arrays of characters.
/** @import { FrameChanges, LaneFrame, ShownPassage } from "../lib/wire.d.ts" */
import { closest, make } from "../lib/dom.js";
import { keepSpacing } from "../panes/tokens.js";
import { Sources } from "./sources.js";

const REDRAW_MS = 250;
// Selects the words of passages that answers were drafted from.
const WORDS = ".passage mark.drafted";

/**
 * For each mark: its offsets in the passage, and the accepted runs that were drafted from it.
 * @type {WeakMap<Element, {start: number, end: number, runs: HTMLElement[]}>}
 */
const STRETCHES = new WeakMap();

// The offsets at which to cut a text, so that all characters of a piece have the same links, and all or none are
// evidence.
export function findEdges(evidence, links) {
  const size = evidence.length;
  const edges = new Set([0, size]);
  for (let index = 1; index < size; index++) if (evidence[index] !== evidence[index - 1]) edges.add(index);
  for (const { start, end } of links) edges.add(Math.min(start, size)).add(Math.min(end, size));
  return [...edges].sort((a, b) => a - b);
}

class Passage {
  /**
   * @param {ShownPassage} passage
   * @param {number} number
   */
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

  removeLinks() {
    this.links = [];
    this.stale = true;
  }

  // Links the words from `start` to `end` with the accepted run that was drafted from them. `run` is an element of a
  // pane.
  link(start, end, run) {
    this.links.push({ start, end, run });
    this.stale = true;
  }

  // Draws one mark for each stretch with the same links. Links to runs that a pane has removed are dropped.
  draw() {
    this.stale = false;
    this.links = this.links.filter(({ run }) => run.isConnected);
    const edges = findEdges(this.evidence, this.links);
    this.text.replaceChildren(...edges.slice(0, -1).map((start, index) => this.drawStretch(start, edges[index + 1])));
  }

  drawStretch(start, end) {
    const text = this.characters.slice(start, end).join("");
    const runs = this.links.filter((link) => link.start < end && start < link.end).map((link) => link.run);
    const names = [this.evidence[start] && "evidence", runs.length && "drafted"].filter(Boolean);
    if (!names.length) return document.createTextNode(text);
    const mark = make("mark", names.join(" "));
    mark.append(...keepSpacing(text));
    STRETCHES.set(mark, { start, end, runs });
    if (runs.length) mark.tabIndex = -1;
    return mark;
  }

  findMarks(start, end) {
    return [...this.text.querySelectorAll("mark.drafted")].filter((mark) => {
      const stretch = STRETCHES.get(mark);
      return stretch.start < end && start < stretch.end;
    });
  }
}

export class Passages {
  constructor(host) {
    this.host = host;
    this.list = [];
    // For each accepted run, the parts of passages that it was copied from: [passage, start, end].
    this.spans = new WeakMap();
    this.lit = [];
    this.sources = new Sources();
    this.live = false;
    host.querySelector(".cards").before(this.sources.node);
    for (const name of ["pointerover", "focusin"])
      host.addEventListener(name, ({ target }) => this.pointAtWords(closest(target, WORDS)));
    for (const name of ["pointerleave", "focusout"]) host.addEventListener(name, () => this.highlight());
    host.addEventListener("keydown", (event) =>
      this.moveFocus(event, WORDS, (mark) => STRETCHES.get(mark).runs.find((run) => run.isConnected)),
    );
    new IntersectionObserver(([{ isIntersecting }]) => {
      this.visible = isIntersecting;
      if (this.redrawDue) this.redraw();
    }).observe(host);
  }

  // Pointing at a run in the panes lights up its words here; pointing at the words lights up the run.
  watch(panes) {
    for (const name of ["pointerover", "focusin"])
      panes.addEventListener(name, ({ target }) => this.pointAtRun(closest(target, ".run")));
    for (const name of ["pointerleave", "focusout"]) panes.addEventListener(name, () => this.highlight());
    panes.addEventListener("keydown", (event) => this.moveFocus(event, ".run.linked", (run) => this.findMarks(run)[0]));
  }

  /**
   * @param {ShownPassage[]} passages
   * @param {{ lane: string, title?: string }[]} lanes
   */
  show(passages, lanes = []) {
    this.list = passages.map((passage, index) => new Passage(passage, index + 1));
    this.host.querySelector(".cards").replaceChildren(...this.list.map((passage) => passage.node));
    this.sources.setUp(lanes);
    this.host.hidden = !this.list.length;
  }

  // Links an accepted run with the words it was copied from.
  linkRun(spans, run) {
    this.spans.set(run, spans);
    for (const [passage, start, end] of spans) this.list[passage]?.link(start, end, run);
    const numbers = [...new Set(spans.map(([passage]) => passage + 1))];
    run.title += `, from passage ${numbers.join(" and ")}`;
    run.classList.add("linked");
    run.tabIndex = run.parentNode?.querySelector(".run[tabindex='0']") ? -1 : 0;
    this.redraw();
  }

  // `sources` counts the lane's tokens by where they were copied from.
  setCounts(lane, sources) {
    const row = this.sources.rows[lane];
    if (row) row.counts = sources ?? [];
    this.redraw();
  }

  // Removes all links and counts, for a replay from the start.
  reset() {
    for (const passage of this.list) passage.removeLinks();
    this.sources.reset();
    this.redraw();
  }

  // Redraws at most every REDRAW_MS. During a live race, which drawing would slow down if it runs on this machine,
  // redraws only if the passages are visible.
  redraw() {
    this.redrawDue = this.live && !this.visible;
    if (!this.redrawDue) this.timer ??= setTimeout(() => this.drawNow(), REDRAW_MS);
  }

  drawNow() {
    clearTimeout(this.timer);
    this.timer = undefined;
    for (const passage of this.list) if (passage.stale) passage.draw();
    this.sources.draw();
    if (this.pointedRun?.isConnected) this.pointAtRun(this.pointedRun);
  }

  // The marks of the words that a run was drafted from.
  findMarks(run) {
    return (this.spans.get(run) ?? []).flatMap(
      ([passage, start, end]) => this.list[passage]?.findMarks(start, end) ?? [],
    );
  }

  highlight(nodes = []) {
    for (const node of this.lit) node.classList.remove("lit");
    this.lit = nodes;
    this.pointedRun = undefined;
    for (const node of nodes) node.classList.add("lit");
  }

  pointAtRun(run) {
    if (!run || !this.spans.has(run)) return this.highlight();
    if (this.list.some((passage) => passage.stale)) this.drawNow();
    const marks = this.findMarks(run);
    this.highlight([run, ...marks]);
    this.pointedRun = run;
    this.reveal(marks[0]);
    return undefined;
  }

  pointAtWords(mark) {
    if (!mark) return this.highlight();
    return this.highlight([mark, ...STRETCHES.get(mark).runs.filter((run) => run.isConnected)]);
  }

  // Scrolls the column of passages to a mark if the column has its own scroll bar. Never scrolls the page.
  reveal(mark) {
    const { host } = this;
    if (!mark || host.scrollHeight <= host.clientHeight || getComputedStyle(host).overflowY !== "auto") return;
    const frame = host.getBoundingClientRect();
    const box = mark.getBoundingClientRect();
    if (box.top < frame.top || box.bottom > frame.bottom) host.scrollTop += box.top - frame.top - frame.height / 3;
  }

  // Moves the focus: an arrow key moves it to the next or previous linked words, Enter to the other end of the link.
  moveFocus(event, selector, findOtherEnd) {
    const node = closest(event.target, selector);
    if (!node) return;
    const list = [...event.currentTarget.querySelectorAll(selector)];
    const offset = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!offset && event.key !== "Enter") return;
    const next = offset ? list[list.indexOf(node) + offset] : findOtherEnd(node);
    event.preventDefault();
    event.stopPropagation();
    next?.focus();
  }
}
